{{- define "holdfast.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "holdfast.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "holdfast.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.selectorLabels" -}}
app.kubernetes.io/name: {{ include "holdfast.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "holdfast.provisionerSelectorLabels" -}}
app.kubernetes.io/name: {{ include "holdfast.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: provisioner
{{- end -}}

{{- define "holdfast.provisionerLabels" -}}
{{ include "holdfast.provisionerSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "holdfast.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "holdfast.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Where the lease is: what the configuration says, else the release's own namespace. */}}
{{- define "holdfast.leaseNamespace" -}}
{{- $election := default dict .Values.config.leaderElection -}}
{{- default .Release.Namespace $election.resourceNamespace -}}
{{- end -}}

{{- define "holdfast.leaseName" -}}
{{- $election := default dict .Values.config.leaderElection -}}
{{- default "holdfast-scheduler" $election.resourceName -}}
{{- end -}}

{{/* The whole configuration, as it was given, with what only the release knows. */}}
{{- define "holdfast.config" -}}
{{- if .Values.config.extenders -}}
{{- fail "config.extenders: HTTP extenders are not supported: Holdfast makes no requests while it decides. Write a plugin in Python instead (docs/plugins.md) and remove this value" -}}
{{- end -}}
{{- $type := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" -}}
{{- $lease := dict "resourceNamespace" (include "holdfast.leaseNamespace" .) -}}
{{- $defaults := merge $type (dict "leaderElection" $lease) -}}
{{- $config := merge (deepCopy .Values.config) $defaults -}}
{{- if .Values.provisioner.enabled -}}
{{- toYaml (merge $config (dict "dynamicReservation" (dict "provisioner" "external"))) -}}
{{- else -}}
{{- toYaml $config -}}
{{- end -}}
{{- end -}}
