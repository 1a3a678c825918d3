{{/* Names and labels. */}}

{{- define "highgate.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 48 | trimSuffix "-" }}
{{- end -}}

{{/* Room is left for the longest suffix, and for the number of a pod. */}}
{{- define "highgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains (include "highgate.name" .) .Release.Name -}}
{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "highgate.name" .) | trunc 48 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "highgate.selector" -}}
app.kubernetes.io/name: {{ include "highgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "highgate.etcd.selector" -}}
app.kubernetes.io/name: {{ include "highgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: etcd
{{- end -}}

{{/* What all objects share; the selector's labels come beside it. */}}
{{- define "highgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: highgate
{{- end -}}

{{- define "highgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "highgate.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "highgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a pod has a volume of its own, and so is one of a StatefulSet. */}}
{{- define "highgate.stateful" -}}
{{- if or (eq .Values.store.kind "embedded") .Values.persistence.enabled }}yes{{ end -}}
{{- end -}}

{{- define "highgate.kind" -}}
{{ include "highgate.stateful" . | empty | ternary "Deployment" "StatefulSet" }}
{{- end -}}

{{- define "highgate.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicas) -}}
{{ int .Values.replicas }}
{{- else -}}
{{ eq .Values.store.kind "embedded" | ternary 1 3 }}
{{- end -}}
{{- end -}}
