// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// podFrom reads a pod whose spec and status are written as the API has them.
func podFrom(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Name, p.Namespace = "weft-x", "kube-system"
	return p
}

// agentIs is a scheduled pod whose agent is in a state.
func agentIs(phase, state string) string {
	return "{spec: {nodeName: a}, status: {phase: " + phase + ", containerStatuses: [{name: proxy, state: {running: {}}}, {name: agent, " + state + "}]}}"
}

// initIs is a scheduled pod whose first init container is in a state.
func initIs(state string) string {
	return `{spec: {nodeName: a}, status: {phase: Pending,
		initContainerStatuses: [{name: install, ` + state + `}, {name: later, state: {waiting: {reason: PodInitializing}}}],
		containerStatuses: [{name: agent, state: {waiting: {reason: PodInitializing}}}]}}`
}

func TestTrouble(t *testing.T) {
	const down = "the agent is not running: "
	const see = "; see: kubectl -n kube-system "
	at := `finishedAt: "2026-03-01T04:12:04+01:00"`
	for name, c := range map[string]struct{ pod, want string }{
		"runs":      {agentIs("Running", "state: {running: {}}, ready: true"), ""},
		"not ready": {agentIs("Running", "state: {running: {}}, ready: false"), ""},
		"crash loop": {agentIs("Running", `restartCount: 7, state: {waiting: {reason: CrashLoopBackOff, message: back-off 5m0s restarting}},
			lastState: {terminated: {exitCode: 1, reason: Error, message: "weft: read x\nweft: it is not a map\n", `+at+`}}`),
			down + "CrashLoopBackOff, exit code 1 at 2026-03-01T03:12:04Z, 7 restarts: weft: it is not a map" + see + "logs weft-x -c agent --previous"},
		"out of memory": {agentIs("Running", `restartCount: 1, state: {terminated: {exitCode: 137, reason: OOMKilled, `+at+`}}`),
			down + "OOMKilled, exit code 137 at 2026-03-01T03:12:04Z, 1 restart" + see + "logs weft-x -c agent"},
		"killed": {agentIs("Running", `state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: Error, message: "{\"level\":\"INFO\"}\n", `+at+`}}`),
			down + "CrashLoopBackOff, exit code 137 at 2026-03-01T03:12:04Z" + see + "logs weft-x -c agent --previous"},
		"signal": {agentIs("Running", `state: {terminated: {signal: 9, reason: Error, `+at+`}}`),
			down + "signal 9 at 2026-03-01T03:12:04Z" + see + "logs weft-x -c agent"},
		"image": {agentIs("Pending", `state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"weft:v9\": not found."}}`),
			down + `ImagePullBackOff: Back-off pulling image "weft:v9": not found` + see + "describe pod weft-x"},
		"creating": {agentIs("Pending", "state: {waiting: {reason: ContainerCreating}}"),
			down + "ContainerCreating" + see + "describe pod weft-x"},
		"init fails": {initIs(`restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, message: "weft: no space left", ` + at + `}}`),
			down + "init container install: CrashLoopBackOff, exit code 1 at 2026-03-01T03:12:04Z, 3 restarts: weft: no space left" + see + "logs weft-x -c install --previous"},
		"init image": {initIs(`state: {waiting: {reason: ErrImagePull, message: no such host}}`),
			down + "init container install: ErrImagePull: no such host" + see + "describe pod weft-x"},
		"init hangs": {initIs(`state: {running: {startedAt: "2026-03-01T03:12:04Z"}}`),
			down + "init container install: running since 2026-03-01T03:12:04Z" + see + "logs weft-x -c install"},
		"sidecar runs, second fails": {`{spec: {nodeName: a, initContainers: [{name: mesh, restartPolicy: Always}, {name: install}]}, status: {phase: Pending,
			initContainerStatuses: [{name: mesh, state: {running: {}}}, {name: install, state: {terminated: {exitCode: 2, ` + at + `}}}],
			containerStatuses: [{name: agent, state: {waiting: {reason: PodInitializing}}}]}}`,
			down + "init container install: exit code 2 at 2026-03-01T03:12:04Z" + see + "logs weft-x -c install"},
		"init is over, agent crashes": {`{spec: {nodeName: a}, status: {phase: Running, initContainerStatuses: [{name: install, state: {terminated: {exitCode: 0}}}],
			containerStatuses: [{name: agent, state: {waiting: {reason: CreateContainerConfigError, message: 'configmap "weft" not found'}}}]}}`,
			down + `CreateContainerConfigError: configmap "weft" not found` + see + "describe pod weft-x"},
		"unschedulable": {`{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes are available: 1 Insufficient memory."}]}}`,
			down + "its pod is on no node yet: Unschedulable: 0/3 nodes are available: 1 Insufficient memory" + see + "describe pod weft-x"},
		"no scheduler": {`{status: {phase: Pending}}`,
			down + "its pod is on no node yet: the scheduler has said nothing of it yet" + see + "describe pod weft-x"},
		"kubelet is silent": {`{spec: {nodeName: a}, status: {phase: Pending}}`,
			down + "pod weft-x is Pending, and its kubelet has told nothing of it yet" + see + "describe pod weft-x"},
		"evicted": {`{spec: {nodeName: a}, status: {phase: Failed, reason: Evicted, message: "The node was low on resource: memory. ", containerStatuses: [{name: agent, state: {terminated: {exitCode: 137}}}]}}`,
			down + "Evicted: The node was low on resource: memory" + see + "describe pod weft-x"},
		"refused by the kubelet": {`{spec: {nodeName: a}, status: {phase: Failed, reason: OutOfcpu, message: Node didn't have enough resource}}`,
			down + "OutOfcpu: Node didn't have enough resource" + see + "describe pod weft-x"},
		"leaves": {`{metadata: {deletionTimestamp: "2026-03-01T03:12:04Z"}, spec: {nodeName: a}, status: {phase: Running, containerStatuses: [{name: agent, state: {terminated: {exitCode: 0, reason: Completed, ` + at + `}}}]}}`,
			down + "its pod is being deleted; exit code 0 at 2026-03-01T03:12:04Z" + see + "logs weft-x -c agent"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trouble(podFrom(t, c.pod)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	for conditions, want := range map[string]string{
		`[]`: "",
		`[{type: MemoryPressure, status: "False"}, {type: Ready, status: "True"}]`:                                                                               "",
		`[{type: Ready, status: "False", reason: KubeletNotReady, message: no network}]`:                                                                         "",
		`[{type: Ready, status: Unknown, lastTransitionTime: "2026-03-01T03:12:04Z", reason: NodeStatusUnknown, message: Kubelet stopped posting node status.}]`: "the node is not ready since 2026-03-01T03:12:04Z: NodeStatusUnknown: Kubelet stopped posting node status",
	} {
		var n corev1.Node
		if err := yaml.UnmarshalStrict([]byte("status: {conditions: "+conditions+"}"), &n); err != nil {
			t.Fatal(err)
		}
		if got := silence(&n); got != want {
			t.Errorf("%s: %q, want %q", conditions, got, want)
		}
	}
}

// Of several pods on a node the best is asked, in whichever order the API has them.
func TestBest(t *testing.T) {
	const runs = "status: {phase: Running, containerStatuses: [{name: agent, state: {running: {}}}]}"
	const fails = "status: {phase: Running, containerStatuses: [{name: agent, state: {waiting: {reason: CrashLoopBackOff}}}]}"
	pod := func(name, time, deleted, status string) string {
		if deleted != "" {
			deleted = `, deletionTimestamp: "2026-03-01T04:00:00Z"`
		}
		return `{metadata: {labels: {as: ` + name + `}, creationTimestamp: "2026-03-01T0` + time + `:00:00Z"` + deleted + `}, spec: {nodeName: a}, ` + status + "}"
	}
	for name, c := range map[string]struct{ better, worse string }{
		"old still runs":          {pod("old", "1", "yes", runs), pod("new", "2", "", fails)},
		"new runs already":        {pod("new", "2", "", runs), pod("old", "1", "yes", runs)},
		"both down, old leaves":   {pod("new", "1", "", fails), pod("old", "2", "yes", fails)},
		"evicted and another one": {pod("new", "1", "", fails), pod("old", "2", "", "status: {phase: Failed, reason: Evicted}")},
		"the younger one":         {pod("new", "2", "", fails), pod("old", "1", "", fails)},
	} {
		t.Run(name, func(t *testing.T) {
			better, worse := *podFrom(t, c.better), *podFrom(t, c.worse)
			for _, pods := range [][]corev1.Pod{{better, worse}, {worse, better}} {
				if got := best(pods)["a"]; got.Labels["as"] != better.Labels["as"] {
					t.Errorf("%s is asked", got.Labels["as"])
				}
			}
		})
	}
}

// A DaemonSet's pod is for a node before it is on it.
func TestNodeOf(t *testing.T) {
	const byAffinity = `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}}}`
	for text, want := range map[string]string{
		byAffinity:              "a",
		`{spec: {nodeName: b}}`: "b",
		`{}`:                    "",
		strings.Replace(byAffinity, "matchFields", "matchExpressions", 1): "",
	} {
		if got := nodeOf(podFrom(t, text)); got != want {
			t.Errorf("%s is for node %q, want %q", text, got, want)
		}
	}
}
