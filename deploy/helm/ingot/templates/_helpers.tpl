{{- define "ingot.selector" -}}
app.kubernetes.io/name: ingot
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ingot.labels" -}}
{{ include "ingot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ingot.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end }}

{{- define "ingot.claim" -}}
{{- .Values.images.claim.existing | default (printf "%s-images" .Release.Name) -}}
{{- end }}

{{/* The controller's configuration: further keys of the values, and over them what the chart decides. */}}
{{- define "ingot.config" -}}
{{- $host := printf "%s.%s" .Release.Name .Release.Namespace -}}
{{- $names := concat .Values.names (list "localhost" .Release.Name $host (printf "%s.svc" $host)) | uniq -}}
{{- $own := dict
  "listen" (dict "http" ":8080" "rest" (ternary ":50055" "" .Values.rest.enabled))
  "data_dir" "/var/lib/ingot-controller"
  "keys_dir" "/run/ingot/keys"
  "tokens_file" "/run/ingot/keys/tokens"
  "database" (dict "migrate" false "pool_size" .Values.database.poolSize)
  "tls" (dict "names" $names)
  "advertise" .Values.advertise
  "drain" (dict "delay" (printf "%vs" .Values.drain.delaySeconds) "timeout" (printf "%vs" .Values.drain.timeoutSeconds))
-}}
{{- if .Values.images.bucket -}}
{{- $files := dict "credentials_file" "/run/ingot/bucket/credentials" -}}
{{- if .Values.images.bucketCA }}{{ $_ := set $files "ca_file" "/run/ingot/bucket/ca.crt" }}{{ end -}}
{{- $_ := set $own "images" (dict "bucket" (mergeOverwrite (deepCopy .Values.images.bucket) $files)) -}}
{{- else -}}
{{- $_ := set $own "images_dir" "/var/lib/ingot-images" -}}
{{- end -}}
{{- $json := dict "log" (dict "format" "json") -}}
{{- mergeOverwrite $json (deepCopy .Values.config) $own | toYaml -}}
{{- end }}

{{/* The database, for the controllers and for the Job: the URL of the Secret, and how its server is verified. */}}
{{- define "ingot.databaseEnv" -}}
- name: INGOT_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secret }}
      key: {{ .Values.database.key }}
{{- if .Values.database.caSecret }}
- {name: PGSSLMODE, value: verify-full}
- {name: PGSSLROOTCERT, value: /run/ingot/database-ca/ca.crt}
{{- end }}
- {name: PGTARGETSESSIONATTRS, value: read-write}
- {name: PGCONNECT_TIMEOUT, value: "5"}
{{- end }}

{{- define "ingot.databaseMount" -}}
{{- if .Values.database.caSecret -}}
- {name: database-ca, mountPath: /run/ingot/database-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "ingot.databaseVolume" -}}
{{- if .Values.database.caSecret -}}
- name: database-ca
  secret:
    secretName: {{ .Values.database.caSecret }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end }}

{{/* The image's user, and no right that it does not need: the profile "restricted" of Pod Security takes it. Neither the
controller nor the migration speaks to this cluster. */}}
{{- define "ingot.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ingot.containerSecurity" -}}
image: {{ include "ingot.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "ingot.databaseEgress" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
- ports:
    - {protocol: TCP, port: {{ .Values.networkPolicy.database.port }}}
  {{- with .Values.networkPolicy.database.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
