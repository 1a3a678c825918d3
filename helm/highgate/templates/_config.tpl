{{/*
The config file, as one tree: the tables of `config`, with what the chart sets laid over them. Paths below /etc/highgate are
those at which _pod.tpl mounts the Secrets.
*/}}

{{/* Of (dict "root" $ "port" .Values.admin "name" "admin"): a listener's address, and TLS or `insecure`. */}}
{{- define "highgate.config.port" -}}
address: {{ printf "%s:%d" .root.Values.bindAddress (int .port.port) | quote }}
{{- if include "highgate.tls.on" . }}
tls:
  cert: /etc/highgate/tls/tls.crt
  key: /etc/highgate/tls/tls.key
  {{- if .port.clientAuth }}
  client_ca: /etc/highgate/client-ca/ca.crt
  client_auth: {{ .port.clientAuth }}
  {{- end }}
{{- else }}
insecure: true
{{- end }}
{{- with .port.auth }}{{ with .secretName }}
auth:
  bearer_file: /etc/highgate/{{ $.name }}-auth/token
{{- end }}{{ end }}
{{- end -}}

{{- define "highgate.config.etcd.endpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $name := include "highgate.fullname" . -}}
{{- $scheme := include "highgate.etcd.tls.secretName" . | empty | ternary "http" "https" -}}
{{- range $at := until 3 }}
- {{ printf "%s://%s-etcd-%d.%s-etcd.%s.svc:2379" $scheme $name $at $name $.Release.Namespace }}
{{- end }}
{{- else }}
{{- toYaml .Values.store.etcd.endpoints }}
{{- end -}}
{{- end -}}

{{- define "highgate.config.etcd.prefix" -}}
{{ default (printf "/highgate/%s/%s" .Release.Namespace (include "highgate.fullname" .)) .Values.store.etcd.prefix }}
{{- end -}}

{{- define "highgate.config.store" -}}
kind: {{ .Values.store.kind }}
path: /var/lib/highgate
{{- if eq .Values.store.kind "etcd" }}
endpoints:
  {{- include "highgate.config.etcd.endpoints" . | nindent 2 }}
prefix: {{ include "highgate.config.etcd.prefix" . | quote }}
{{- if include "highgate.config.etcd.secret" . }}
tls:
  ca: /etc/highgate/etcd-tls/ca.crt
  {{- if or .Values.etcd.enabled .Values.store.etcd.tls.clientCertificate }}
  cert: /etc/highgate/etcd-tls/tls.crt
  key: /etc/highgate/etcd-tls/tls.key
  {{- end }}
{{- end }}
{{- with .Values.store.etcd.user }}{{ if .name }}
user:
  name: {{ .name | quote }}
  password_file: /etc/highgate/etcd-user/password
{{- end }}{{ end }}
{{- end }}
{{- end -}}

{{- define "highgate.config.etcd.secret" -}}
{{- if ne .Values.store.kind "etcd" -}}
{{- else if .Values.etcd.enabled -}}
{{ include "highgate.etcd.tls.secretName" . }}
{{- else -}}
{{ .Values.store.etcd.tls.secretName }}
{{- end -}}
{{- end -}}

{{- define "highgate.config.routes" -}}
{{- if .Values.upstream -}}
- name: default
  upstream: {{ .Values.upstream | quote }}
  resource: {client: true, default: default}
{{- else -}}
{{ toYaml .Values.routes }}
{{- end -}}
{{- end -}}

{{/* The tree, as YAML: a template can hand over nothing but text. */}}
{{- define "highgate.config.tree" -}}
{{- $tree := deepCopy .Values.config -}}
{{- $listen := include "highgate.config.port" (dict "root" . "port" .Values.data "name" "data") | fromYaml -}}
{{- $_ := set $tree "listen" (mergeOverwrite (dict) (default (dict) $tree.listen) $listen) -}}
{{- $_ := set $tree "admin" (include "highgate.config.port" (dict "root" . "port" .Values.admin "name" "admin") | fromYaml) -}}
{{- if .Values.elections.enabled -}}
{{- $_ := set $tree "elections" (include "highgate.config.port" (dict "root" . "port" .Values.elections "name" "elections") | fromYaml) -}}
{{- end -}}
{{- $_ := set $tree "store" (mergeOverwrite (dict) (default (dict) $tree.store) (include "highgate.config.store" . | fromYaml)) -}}
{{- if .Values.secrets.secretName -}}
{{- $_ := set $tree "secrets" (dict "file" "/etc/highgate/secrets/secrets") -}}
{{- end -}}
{{- with .Values.grants -}}
{{- $_ := set $tree "grants" . -}}
{{- end -}}
{{- $_ := set $tree "routes" (include "highgate.config.routes" . | fromYamlArray) -}}
{{ toYaml $tree }}
{{- end -}}

{{- define "highgate.config" -}}
{{ include "highgate.toml" (include "highgate.config.tree" . | fromYaml) | trim }}
{{- end -}}

{{/* What a running gateway does not take over from a changed file: a change of it has to restart the pods. */}}
{{- define "highgate.config.restart" -}}
{{ omit (include "highgate.config.tree" . | fromYaml) "routes" "grants" "log" "secrets" | toYaml | sha256sum }}
{{- end -}}

{{/* A time of the config file in whole seconds, rounded up. */}}
{{- define "highgate.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if eq $unit "ms" -}}{{ div (add $number 999) 1000 }}
{{- else if eq $unit "m" -}}{{ mul $number 60 }}
{{- else if eq $unit "h" -}}{{ mul $number 3600 }}
{{- else -}}{{ $number }}
{{- end -}}
{{- end -}}

{{/* docs/operations.md: unready_delay and drain_limit, and 10 s more; before them the sleep of preStop. */}}
{{- define "highgate.gracePeriod" -}}
{{- $shutdown := default (dict) .Values.config.shutdown -}}
{{- $unready := include "highgate.seconds" (default "1s" $shutdown.unready_delay) | int -}}
{{- $drain := include "highgate.seconds" (default "30s" $shutdown.drain_limit) | int -}}
{{ add (int .Values.preStopSeconds) $unready $drain 10 }}
{{- end -}}
