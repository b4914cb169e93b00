{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "weft.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Host and port. An IPv6 address may be given with brackets or without. */ -}}
{{- define "weft.listen" -}}
{{- $host := trimAll "[]" .Values.listen.address -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- printf "%s:%d" $host (int .Values.listen.port) -}}
{{- end }}

{{- /* Where the kubelet asks: who listens on all addresses does so on loopback. */ -}}
{{- define "weft.probeHost" -}}
{{- $host := trimAll "[]" .Values.listen.address -}}
{{- has $host (list "" "0.0.0.0" "::") | ternary "127.0.0.1" $host -}}
{{- end }}

{{- /* Keys of the agent's configuration that do not belong in the one for all nodes. */ -}}
{{- define "weft.checkConfiguration" -}}
{{- $foreign := dict
      "nodeName" "would give all nodes one name, and their pods the same addresses; each agent takes that of the node that it runs on"
      "stateDir" "is the value stateDir"
      "listen" "is listen.address and listen.port"
      "cni.confFile" "is cni.confDir and cni.confFile" -}}
{{- $given := merge (dict "cni.confFile" (.Values.config.cni | default dict).confFile) .Values.config -}}
{{- range $key, $why := $foreign -}}
{{- if get $given $key }}{{ fail (printf "config.%s cannot be set: it %s" $key $why) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "weft.agentConfiguration" -}}
{{- include "weft.checkConfiguration" . -}}
{{- $filled := dict
      "apiVersion" "weft.dev/v1alpha1"
      "kind" "AgentConfiguration"
      "stateDir" .Values.stateDir
      "listen" (include "weft.listen" .)
      "cni" (dict "confFile" (printf "%s/%s" .Values.cni.confDir .Values.cni.confFile)) -}}
{{- if .Values.pool.create }}
{{- $_ := set $filled "cluster" (dict "initialPool" .Values.pool.spec) }}
{{- end }}
{{ mergeOverwrite $filled (deepCopy .Values.config) | toYaml }}
{{- end }}

{{- /* What the agent reads at its start only; it follows a change of all the rest. */ -}}
{{- define "weft.fixedConfiguration" -}}
{{- $all := include "weft.agentConfiguration" . | fromYaml -}}
{{- $fixed := pick $all "stateDir" "socket" "nodeName" "cluster" "listen" "tracing" -}}
{{- set $fixed "logFormat" (dig "log" "format" "" $all) | toJson -}}
{{- end }}

{{- /* Where pods of weft run: on every node, before there is a network. */ -}}
{{- define "weft.placement" -}}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  seccompProfile:
    type: RuntimeDefault
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "weft.uninstallArguments" -}}
- --state-dir={{ .Values.stateDir }}
- --conf-file={{ .Values.cni.confDir }}/{{ .Values.cni.confFile }}
- --bin-dir={{ .Values.cni.binDir }}
{{- end }}

{{- define "weft.uninstallContainer" -}}
image: {{ include "weft.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsUser: 0
  capabilities:
    drop: [ALL]
    add: [NET_ADMIN] # links, routes, nftables
volumeMounts:
  - {name: run, mountPath: {{ dir .Values.stateDir }}, mountPropagation: HostToContainer}
  - {name: conf, mountPath: {{ .Values.cni.confDir }}}
  - {name: bin, mountPath: {{ .Values.cni.binDir }}}
{{- end }}
