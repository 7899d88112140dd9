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

{{- /* What the pods of all programs have in common. */}}
{{- define "trafficd.pod" -}}
serviceAccountName: {{ .Values.serviceAccount.name | default (ternary (include "trafficd.name" .) "default" .Values.serviceAccount.create) | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The environment of all programs. */}}
{{- define "trafficd.env" -}}
{{- with .Values.extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.envSecret }}
envFrom:
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}

{{- /* The volumes of all programs: /etc/trafficd/files, and extraVolumes. */}}
{{- define "trafficd.volumes" -}}
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
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "trafficd.mounts" -}}
{{- if or .Values.filesConfigMap .Values.filesSecret }}
- {name: files, mountPath: /etc/trafficd/files, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
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
