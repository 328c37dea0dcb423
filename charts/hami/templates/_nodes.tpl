{{/* Which nodes: those with all the labels of one of `selectors`; none of them is every node. */}}
{{- define "hami.onNodes" -}}
{{- with .selectors }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        {{- range . }}
        - matchExpressions:
            {{- range $label, $value := . }}
            - {key: {{ $label }}, operator: In, values: [{{ $value | quote }}]}
            {{- end }}
        {{- end }}
{{- end }}
{{- end }}

{{/* The vendors whose devices hami itself serves on nodes: a list of keys. */}}
{{- define "hami.servedVendors" -}}
{{- $keys := list }}
{{- range $key, $vendor := .Values.vendors }}
{{- if and $vendor.enabled ($vendor.devicePlugin | default dict).enabled }}
{{- $keys = append $keys $key }}
{{- end }}
{{- end }}
{{- $keys | toJson }}
{{- end }}

{{/* A directory of the node in a container: {name, path, mountPath, readOnly}. */}}
{{- define "hami.hostVolume" -}}
- name: {{ .name }}
  hostPath: {path: {{ .path }}, type: {{ if eq .path "/" }}Directory{{ else }}DirectoryOrCreate{{ end }}}
{{- end }}
{{- define "hami.hostMount" -}}
- name: {{ .name }}
  mountPath: {{ .mountPath | default .path }}
  {{- if .readOnly }}
  readOnly: true
  {{- end }}
  mountPropagation: HostToContainer
{{- end }}

{{/* How an agent or a monitor is told of its node: variables. */}}
{{- define "hami.nodeEnv" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
