{{/* Which ports have TLS, and from where their certificate is. */}}

{{- define "highgate.tls.secretName" -}}
{{- if .Values.tls.secretName -}}
{{ .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled -}}
{{ include "highgate.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* Of (dict "root" $ "port" .Values.admin): "yes" if that port speaks TLS. The schema has seen to the rest. */}}
{{- define "highgate.tls.on" -}}
{{- if and (include "highgate.tls.secretName" .root) (not .root.Values.insecure) (not .port.insecure) }}yes{{ end -}}
{{- end -}}

{{- define "highgate.tls.scheme" -}}
{{ include "highgate.tls.on" . | empty | ternary "http" "https" }}
{{- end -}}

{{/* The names that the certificate of the ports is for. */}}
{{- define "highgate.tls.names" -}}
{{- $names := list -}}
{{- range $suffix := list "" "-admin" "-elections" -}}
{{- $service := printf "%s%s" (include "highgate.fullname" $) $suffix -}}
{{- range $domain := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) -}}
{{- $names = append $names (printf "%s%s" $service $domain) -}}
{{- end -}}
{{- end -}}
{{ concat $names .Values.tls.certManager.dnsNames | uniq | toYaml }}
{{- end -}}

{{- define "highgate.etcd.tls.secretName" -}}
{{- if .Values.etcd.insecure -}}
{{- else if .Values.etcd.tls.secretName -}}
{{ .Values.etcd.tls.secretName }}
{{- else if .Values.tls.certManager.enabled -}}
{{ include "highgate.fullname" . }}-etcd-tls
{{- end -}}
{{- end -}}
