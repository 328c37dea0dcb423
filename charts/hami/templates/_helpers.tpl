{{/* A user as the API server names a service account of this release. */}}
{{- define "hami.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .name }}
{{- end }}

{{- define "hami.labels" -}}
app.kubernetes.io/name: hami
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/*
The annotation keys of the kinds in `kinds` (node, pod, allocation), of hami and every vendor, as a
list that CEL reads: JSON.
*/}}
{{- define "hami.annotations" -}}
{{- $keys := list }}
{{- $kinds := .kinds }}
{{- range $group := prepend (values .annotations.vendors) .annotations.core }}
{{- range $kind := $kinds }}
{{- $keys = concat $keys (get $group $kind | default list) }}
{{- end }}
{{- end }}
{{- $keys | uniq | sortAlpha | toJson }}
{{- end }}
