{{- define "threadfold.name" -}}
{{- ternary .Release.Name (printf "%s-threadfold" .Release.Name) (contains "threadfold" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "threadfold.selector" -}}
app.kubernetes.io/name: threadfold
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "threadfold.labels" -}}
{{ include "threadfold.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* How the gateway is asked: TLS once its certificate is set. */ -}}
{{- define "threadfold.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.settings.gateway_certificate)) }}
{{- end }}

{{- /* What every pod of threadfold shares, around its one container's own keys. */ -}}
{{- define "threadfold.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: work
    emptyDir: {}
  - name: tmp
    emptyDir: {}
  {{- with .Values.filesSecret }}
  - name: files
    # 0440
    secret: {secretName: {{ . | quote }}, defaultMode: 288}
  {{- end }}
{{- end }}

{{- define "threadfold.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  {{- range $name, $value := .Values.settings }}
  - name: {{ printf "THREADFOLD_%s" (upper $name) }}
    {{- /* Helm reads numbers as floats: a large one would be 8.388608e+06. */}}
    value: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value | int64 | quote }}{{ else }}{{ $value | quote }}{{ end }}{{ else }}{{ $value | quote }}{{ end }}
  {{- end }}
envFrom:
  - secretRef: {name: {{ .Values.secret | quote }}}
volumeMounts:
  - {name: work, mountPath: /var/lib/threadfold}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.filesSecret }}
  - {name: files, mountPath: /etc/threadfold/files, readOnly: true}
  {{- end }}
{{- end }}
