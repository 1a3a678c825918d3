{{/* The gateway's pod, the same in a Deployment and in a StatefulSet. */}}

{{/* Of (dict "name" … "secret" … "items" (dict KEY FILE)): a Secret as a volume, readable by the gateway's group alone. */}}
{{- define "highgate.pod.secret" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    {{- with .items }}
    items:
      {{- range $key, $file := . }}
      - {key: {{ $key | quote }}, path: {{ $file }}}
      {{- end }}
    {{- end }}
{{- end -}}

{{- define "highgate.pod.secrets" -}}
{{- if include "highgate.tls.secretName" . }}
{{ include "highgate.pod.secret" (dict "name" "tls" "secret" (include "highgate.tls.secretName" .) "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) }}
{{- end }}
{{- with .Values.tls.clientCASecretName }}
{{ include "highgate.pod.secret" (dict "name" "client-ca" "secret" . "items" (dict "ca.crt" "ca.crt")) }}
{{- end }}
{{- with .Values.admin.auth }}{{ if .secretName }}
{{ include "highgate.pod.secret" (dict "name" "admin-auth" "secret" .secretName "items" (dict .secretKey "token")) }}
{{- end }}{{ end }}
{{- with .Values.elections }}{{ if and .enabled .auth.secretName }}
{{ include "highgate.pod.secret" (dict "name" "elections-auth" "secret" .auth.secretName "items" (dict .auth.secretKey "token")) }}
{{- end }}{{ end }}
{{- with .Values.secrets }}{{ if .secretName }}
{{ include "highgate.pod.secret" (dict "name" "secrets" "secret" .secretName "items" (dict .secretKey "secrets")) }}
{{- end }}{{ end }}
{{- if include "highgate.config.etcd.secret" . }}
{{ include "highgate.pod.secret" (dict "name" "etcd-tls" "secret" (include "highgate.config.etcd.secret" .) "items" (dict)) }}
{{- end }}
{{- with .Values.store }}{{ if and (eq .kind "etcd") .etcd.user.name }}
{{ include "highgate.pod.secret" (dict "name" "etcd-user" "secret" .etcd.user.secretName "items" (dict .etcd.user.secretKey "password")) }}
{{- end }}{{ end }}
{{- end -}}

{{- define "highgate.pod.mounts" -}}
- {name: config, mountPath: /etc/highgate/config, readOnly: true}
- {name: data, mountPath: /var/lib/highgate}
{{- range include "highgate.pod.secrets" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: /etc/highgate/{{ .name }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "highgate.pod.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "highgate.pod.probe" -}}
httpGet: {path: {{ .path }}, port: admin, scheme: {{ include "highgate.tls.scheme" . | upper }}}
{{- end -}}

{{- define "highgate.pod.container" -}}
{{- $admin := dict "root" . "port" .Values.admin -}}
name: highgate
image: {{ include "highgate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/highgate/config/highgate.toml]
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: data, containerPort: {{ .Values.data.port }}}
  - {name: admin, containerPort: {{ .Values.admin.port }}}
  {{- if .Values.elections.enabled }}
  - {name: elections, containerPort: {{ .Values.elections.port }}}
  {{- end }}
# Opening a store and reading its history may take a while.
startupProbe:
  {{- include "highgate.pod.probe" (merge (dict "path" "/healthz") $admin) | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  {{- include "highgate.pod.probe" (merge (dict "path" "/healthz") $admin) | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "highgate.pod.probe" (merge (dict "path" "/readyz") $admin) | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- if .Values.preStopSeconds }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .Values.preStopSeconds }}}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "highgate.pod.locked" . | nindent 2 }}
volumeMounts:
  {{- include "highgate.pod.mounts" . | nindent 2 }}
{{- end -}}

{{/* Ends the rollout of a config that the gateway would not take, with its reasons in the log. */}}
{{- define "highgate.pod.check" -}}
name: check
image: {{ include "highgate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [check, /etc/highgate/config/highgate.toml]
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "highgate.pod.locked" . | nindent 2 }}
volumeMounts:
  {{- include "highgate.pod.mounts" . | nindent 2 }}
{{- end -}}

{{- define "highgate.pod.spread" -}}
{{- range .Values.topologySpread }}
- {{ toYaml (merge (dict "maxSkew" 1) .) | nindent 2 | trim }}
  labelSelector:
    matchLabels:
      {{- include "highgate.selector" $ | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "highgate.pod" -}}
metadata:
  labels:
    {{- include "highgate.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Of what the gateway does not reload in place: a change of routes, grants or logs restarts nothing.
    checksum/restart: {{ include "highgate.config.restart" . }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "highgate.serviceAccountName" . }}
  automountServiceAccountToken: false
  # Else a Service called highgate would set variables that begin with HIGHGATE_.
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  # preStop, unready_delay and drain_limit, and 10 s more.
  terminationGracePeriodSeconds: {{ include "highgate.gracePeriod" . }}
  initContainers:
    - {{ include "highgate.pod.check" . | nindent 6 | trim }}
  containers:
    - {{ include "highgate.pod.container" . | nindent 6 | trim }}
  volumes:
    - name: config
      configMap: {name: {{ include "highgate.fullname" . }}}
    {{- if not (include "highgate.stateful" .) }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- with include "highgate.pod.secrets" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "highgate.pod.spread" . | trim }}
  topologySpreadConstraints:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}
