{{/*
Values as TOML. Sprig's toToml writes whole numbers as fractions, since Helm reads every number as a float; JSON writes
them as they are, and JSON's strings, numbers, booleans and lists of them are TOML as well. What is null is left out.
*/}}

{{- define "highgate.toml.key" -}}
{{ regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toRawJson .) }}
{{- end -}}

{{- define "highgate.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $parts := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $parts = append $parts (printf "%s = %s" (include "highgate.toml.key" $key) (include "highgate.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{{ printf "{ %s }" (join ", " $parts) }}
{{- else if kindIs "slice" . -}}
{{- $parts := list -}}
{{- range . -}}
{{- $parts = append $parts (include "highgate.toml.value" .) -}}
{{- end -}}
{{ printf "[%s]" (join ", " $parts) }}
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- end -}}

{{- define "highgate.toml.entries" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ include "highgate.toml.key" $key }} = {{ include "highgate.toml.value" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A whole file: tables, and lists of tables. */}}
{{- define "highgate.toml" -}}
{{- range $name, $table := . }}
{{- if kindIs "slice" $table }}
{{- range $table }}
[[{{ $name }}]]
{{- include "highgate.toml.entries" . }}
{{ end }}
{{- else if $table }}
[{{ $name }}]
{{- include "highgate.toml.entries" $table }}
{{ end }}
{{- end }}
{{- end -}}
