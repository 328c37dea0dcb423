{{- define "hami.labels" -}}
{{ include "hami.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hami.selectorLabels" -}}
app.kubernetes.io/name: hami
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Where agents and monitors run. */}}
{{- define "hami.nodeNamespace" -}}
{{ .Values.node.namespace | default .Release.Namespace }}
{{- end }}

{{/* Users as the API server names the service accounts of this release. */}}
{{- define "hami.agentUser" -}}
system:serviceaccount:{{ include "hami.nodeNamespace" . }}:{{ .Values.node.devicePlugin.serviceAccount }}
{{- end }}
{{- define "hami.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.scheduler.serviceAccount }}
{{- end }}

{{- define "hami.signingSecret" -}}
{{ .Values.signing.secretName | default (printf "%s-signing-key" .Release.Name) }}
{{- end }}
{{- define "hami.publicKeys" -}}
{{ .Values.signing.publicKeysName | default (printf "%s-signing-keys" .Release.Name) }}
{{- end }}
{{- define "hami.tlsSecret" -}}
{{ .Values.certificate.secretName | default (printf "%s-scheduler-tls" .Release.Name) }}
{{- end }}

{{/* The names that the API server may call the scheduler by. */}}
{{- define "hami.certificateNames" -}}
{{- $service := printf "%s-scheduler.%s.svc" .Release.Name .Release.Namespace }}
{{- $names := list $service (printf "%s.cluster.local" $service) }}
{{- with .Values.webhooks.url }}
{{- $names = append $names (regexReplaceAll ":[0-9]+$" (get (urlParse .) "host") "" | trimPrefix "[" | trimSuffix "]") }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{/* An image: `image` has repository and tag, `registry` goes before them, an empty tag is `tag`. */}}
{{- define "hami.image" -}}
{{- $tag := .image.tag | default .tag }}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}
{{- if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end }}

{{/* Who may have the pod pulled: `image.pullSecrets`. */}}
{{- define "hami.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What kube-scheduler and the webhook ask hami for: of every vendor that is enabled. */}}
{{- define "hami.managedResources" -}}
{{- $names := list }}
{{- range .Values.vendors }}
{{- if .enabled }}
{{- $names = concat $names .managedResources }}
{{- end }}
{{- end }}
{{- $names | uniq | toJson }}
{{- end }}

{{/*
The annotation keys of the kinds in `kinds` (node, pod, allocation), of hami and every vendor, as a
list that CEL reads: JSON. A vendor that is not enabled keeps its own: its devices may be in use.
*/}}
{{- define "hami.annotations" -}}
{{- $keys := list }}
{{- $kinds := .kinds }}
{{- $core := .root.Files.Get "files/annotations.yaml" | fromYaml }}
{{- $groups := list $core }}
{{- range .root.Values.vendors }}
{{- $groups = append $groups (.annotations | default dict) }}
{{- end }}
{{- range $group := $groups }}
{{- range $kind := $kinds }}
{{- $keys = concat $keys (get $group $kind | default list) }}
{{- end }}
{{- end }}
{{- $keys | uniq | sortAlpha | toJson }}
{{- end }}
