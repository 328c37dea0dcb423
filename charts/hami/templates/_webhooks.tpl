{{/* The webhook configurations whose CA the scheduler keeps right: a list. */}}
{{- define "hami.webhookConfigurations" -}}
{{- $found := list }}
{{- if .Values.webhooks.pods.enabled }}
{{- $found = append $found (printf "mutating/%s-webhook" .Release.Name) }}
{{- end }}
{{- if .Values.webhooks.quotas.enabled }}
{{- $found = append $found (printf "validating/%s-elastic-quota" .Release.Name) }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{/* Of a webhook configuration. */}}
{{- define "hami.webhookAnnotations" -}}
{{- $annotations := deepCopy .Values.webhooks.annotations }}
{{- if eq .Values.certificate.source "cert-manager" }}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s-scheduler" .Release.Namespace .Release.Name) }}
{{- end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How the API server reaches `path` of the scheduler. */}}
{{- define "hami.clientConfig" -}}
clientConfig:
  {{- with .root.Values.webhooks.url }}
  url: {{ printf "%s%s" (trimSuffix "/" .) $.path | quote }}
  {{- else }}
  service:
    name: {{ .root.Release.Name }}-scheduler
    namespace: {{ .root.Release.Namespace }}
    port: 443
    path: {{ .path }}
  {{- end }}
  {{- if eq .root.Values.certificate.source "secret" }}
  {{- with .root.Values.certificate.caBundle }}
  caBundle: {{ . }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* Whether the pod in question asks for devices, or says that it has some: CEL. */}}
{{- define "hami.asksForDevices" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(container,
[container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})]
.exists(amounts, amounts.exists(name, name in
{{ include "hami.managedResources" . | replace "," ",\n" }})))
|| object.metadata.?annotations.orValue({}).exists(key, key in
{{ include "hami.annotations" (dict "root" . "kinds" (list "pod" "allocation")) | replace "," ",\n" }})
{{- end }}
