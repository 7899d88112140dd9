{{- define "trafficd.name" -}}
{{- if contains "trafficd" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-trafficd" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "trafficd.selector" -}}
app.kubernetes.io/name: trafficd
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "trafficd.labels" -}}
{{ include "trafficd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "trafficd.forecaster" -}}
{{ include "trafficd.name" . }}-forecaster
{{- end }}

{{- define "trafficd.forecasterSelector" -}}
app.kubernetes.io/name: trafficd-forecaster
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "trafficd.feeder" -}}
{{ include "trafficd.name" . }}-feeder
{{- end }}

{{- define "trafficd.feederSelector" -}}
app.kubernetes.io/name: trafficd-feeder
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "trafficd.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The volume for /etc/trafficd/files, or nothing. */}}
{{- define "trafficd.files" -}}
{{- if or .Values.filesConfigMap .Values.filesSecret }}
- name: files
  projected:
    sources:
      {{- with .Values.filesConfigMap }}
      - configMap: {name: {{ . | quote }}}
      {{- end }}
      {{- with .Values.filesSecret }}
      - secret: {name: {{ . | quote }}}
      {{- end }}
{{- end }}
{{- end }}

{{- /* trafficd.yaml: the values' config, and what the chart decides. */}}
{{- define "trafficd.config" -}}
{{- $api := dict "listen" ":8080" "keys_file" (printf "/etc/trafficd/keys/%s" .Values.keys.key) }}
{{- if .Values.tlsSecret }}
{{- $api = merge $api (dict "tls_cert" "/etc/trafficd/tls/tls.crt" "tls_key" "/etc/trafficd/tls/tls.key") }}
{{- end }}
{{- $ours := dict
      "shutdown_timeout" (printf "%ds" (int .Values.shutdownSeconds))
      "log" (dict "format" "json")
      "api" $api
      "ops" (dict "listen" ":8081")
      "journal" (dict "dir" "/var/lib/trafficd/journal") }}
{{- if and .Values.forecaster.enabled (not (hasKey (get .Values.config "ui" | default dict) "forecaster")) }}
{{- $ours = set $ours "ui" (dict "forecaster" (printf "%s:8081" (include "trafficd.forecaster" .))) }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.config) $ours | toYaml }}
{{- end }}
