{{/* What is scraped: the namespaces of Services, by component. */}}
{{- define "hami.scraped" -}}
{{- $scraped := dict "scheduler" .Release.Namespace }}
{{- if include "hami.servedVendors" . | fromJsonArray }}
{{- $_ := set $scraped "device-plugin" (include "hami.nodeNamespace" .) }}
{{- if .Values.node.monitor.enabled }}
{{- $_ := set $scraped "monitor" (include "hami.nodeNamespace" .) }}
{{- end }}
{{- end }}
{{- $scraped | toJson }}
{{- end }}

{{- define "hami.alerts" -}}
{{ .Files.Get "files/alerts.yaml" | replace "RELEASE" .Release.Name }}
{{- end }}
