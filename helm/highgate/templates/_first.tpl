{{/*
The first fenced request that NOTES shows, as YAML: one that the first route takes, with 1 in the place of every parameter.
`write` is the command up to its token, `jobs` and `url` are where a port-forward has the ports, `resource` is what is fenced.
*/}}

{{- define "highgate.first.here" -}}
{{ include "highgate.tls.scheme" . }}://127.0.0.1:{{ .port.port }}
{{- end -}}

{{- define "highgate.first.one" -}}
{{ regexReplaceAll "\\{[^}]*\\}" . "1" | replace "*" "1" }}
{{- end -}}

{{/* A method that is fenced if the route does not say otherwise. */}}
{{- define "highgate.first.method" -}}
{{- $fenced := without (default (list "POST") .) "GET" "HEAD" "OPTIONS" "TRACE" -}}
{{ has "POST" $fenced | ternary "POST" (first $fenced | default "POST") }}
{{- end -}}

{{- define "highgate.first.resource" -}}
{{- if kindIs "map" .resource -}}
first-try
{{- else -}}
{{- $host := default "127.0.0.1" (default (dict) .match).host | replace "*" "1" -}}
{{ include "highgate.first.one" (default .name .resource | replace "{host}" $host) }}
{{- end -}}
{{- end -}}

{{- define "highgate.first" -}}
{{- $route := include "highgate.config.routes" . | fromYamlArray | first -}}
{{- $match := default (dict) $route.match -}}
{{- $data := dict "root" . "port" .Values.data -}}
{{- $write := printf "curl -i%s -X %s -d hello" (include "highgate.tls.on" $data | empty | ternary "" "k") (include "highgate.first.method" $match.methods) -}}
{{- with $match.host -}}
{{- $write = printf "%s -H 'Host: %s'" $write (include "highgate.first.one" .) -}}
{{- end -}}
{{- if kindIs "map" $route.resource -}}
{{- $write = printf "%s -H 'X-Fencing-Resource: first-try'" $write -}}
{{- end -}}
write: {{ $write | quote }}
url: {{ include "highgate.first.here" $data }}{{ include "highgate.first.one" (default "/" $match.path) }}
jobs: {{ include "highgate.first.here" (dict "root" . "port" .Values.elections) }}
admin: {{ include "highgate.first.here" (dict "root" . "port" .Values.admin) }}
resource: {{ include "highgate.first.resource" $route | quote }}
trusted: {{ eq (default "issued" $route.tokens) "trusted" }}
{{- end -}}
