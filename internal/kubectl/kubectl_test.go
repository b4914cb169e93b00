// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/test/apiserver"
)

// node makes a Node whose kubelet is there.
func node(s *apiserver.Server, name string, kubelet net.Listener, conditions string) {
	s.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + name + "}}")
	s.MustKubectl("", "patch", "node", name, "--subresource=status", "-p", fmt.Sprintf(`{"status": {"conditions": [%s],
		"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`,
		conditions, kubelet.Addr().(*net.TCPAddr).Port))
}

// pod makes an agent's pod with a spec and a status.
func pod(s *apiserver.Server, namespace, name, spec, status string) {
	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app.kubernetes.io/name: weft, app.kubernetes.io/component: agent}}, "+
		"spec: {%s, containers: [{name: agent, image: none}], initContainers: [{name: install, image: none}]}}", name, namespace, spec))
	s.MustKubectl("", "-n", namespace, "patch", "pod", name, "--subresource=status", "-p", `{"status": {`+status+`}}`)
}

const runningAgent = `"phase": "Running", "containerStatuses": [{"name": "agent", "image": "none", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]`

func agentWaits(reason, message, last string) string {
	return fmt.Sprintf(`"phase": "Running", "containerStatuses": [{"name": "agent", "image": "none", "imageID": "", "ready": false, "restartCount": 7,
		"state": {"waiting": {"reason": %q, "message": %q}}, "lastState": {%s}}]`, reason, message, last)
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A cluster where no agent can answer, each for another reason: what is said of it,
// to whom. The kubelet of node hangs takes connections and never answers; that of
// refuses takes none.
func TestRun(t *testing.T) {
	s := apiserver.Start(t, "nobody", "reader", "runner")
	hangs, refuses := listen(t), listen(t)
	refuses.Close()
	for _, n := range []string{"crashes", "empty", "image", "narrow", "refuses", "rolls"} {
		node(s, n, refuses, "")
	}
	node(s, "hangs", hangs, `{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-03-01T03:12:04Z"}`)
	s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: net}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	on := func(node string) string { return "nodeName: " + node }
	pod(s, "net", "weft-hangs", on("hangs"), runningAgent)
	pod(s, "net", "weft-refuses", on("refuses"), runningAgent)
	pod(s, "net", "weft-crashes", on("crashes"), agentWaits("CrashLoopBackOff", "back-off 5m0s",
		`"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-03-01T03:12:04Z", "message": "weft: it is not a map\n"}`))
	pod(s, "net", "weft-image", on("image"), agentWaits("ImagePullBackOff", "no such image", ""))
	pod(s, "net", "weft-narrow", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [narrow]}]}]}}}",
		`"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient memory."}]`)
	pod(s, "net", "weft-rolls-old", on("rolls"), runningAgent)
	s.MustKubectl("", "-n", "net", "delete", "pod", "weft-rolls-old", "--wait=false")
	pod(s, "net", "weft-rolls-new", on("rolls"), agentWaits("ContainerCreating", "", ""))
	for name, spec := range map[string]string{"web-0": on("crashes"), "host-0": on("crashes") + ", hostNetwork: true", "new-0": "priority: 0"} {
		s.Apply("{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: shop}, spec: {" + spec + ", containers: [{name: a, image: none}]}}")
	}
	s.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: look}, rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: run}, rules: [{apiGroups: [""], resources: [pods/exec], verbs: [get, create]}]}`)
	s.MustKubectl("", "create", "clusterrolebinding", "reader", "--clusterrole=look", "--user=reader")
	s.MustKubectl("", "-n", "net", "create", "rolebinding", "look", "--clusterrole=look", "--user=runner")
	s.MustKubectl("", "-n", "net", "create", "rolebinding", "run", "--clusterrole=run", "--user=runner")

	const down = "the agent is not running: "
	const crashes = down + "CrashLoopBackOff, exit code 1 at 2026-03-01T03:12:04Z, 7 restarts: weft: it is not a map; see: kubectl -n net logs weft-crashes -c agent --previous"
	const narrow = down + "its pod is on no node yet: Unschedulable: 1 Insufficient memory; see: kubectl -n net describe pod weft-narrow"
	const late = "no complete answer within 2s (--timeout); the node is not ready since 2026-03-01T03:12:04Z: NodeStatusUnknown: Kubelet stopped posting node status"
	all := []string{"==> crashes", "node crashes: " + crashes, "==> hangs", "node hangs: " + late,
		"==> image", "node image: " + down + "ImagePullBackOff: no such image; see: kubectl -n net describe pod weft-image",
		"==> narrow", "node narrow: " + narrow,
		"==> refuses", "node refuses: run a command in pod net/weft-refuses: Internal error occurred: error sending request: ",
		"==> rolls", "node rolls: run a command in pod net/weft-rolls-old: ",
		"not asked: node empty: it has no agent's pod", "error: 6 of 6 nodes failed: crashes, hangs, image, narrow, refuses, rolls"}
	without := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, "not asked") })
	for i, line := range without {
		if strings.HasPrefix(line, "node hangs") {
			without[i] = "node hangs: no complete answer within 2s (--timeout): see whether the node is Ready: kubectl get nodes"
		}
	}
	status := Command{Args: []string{"status"}}
	about := func(pod string) Command {
		return Command{Args: []string{"pod", "trace"}, Operands: []string{pod}, Pod: pod}
	}
	for name, c := range map[string]struct {
		user    string
		target  Target
		command Command
		want    []string // beginnings of the lines, in their order
	}{
		"all":                {"admin", Target{}, status, all},
		"may not list nodes": {"runner", Target{Namespace: "net"}, status, without},
		"late":               {"admin", Target{Node: "hangs"}, status, []string{"error: node hangs: " + late}},
		"unscheduled":        {"admin", Target{Node: "narrow"}, status, []string{"error: node narrow: " + narrow}},
		"without an agent":   {"admin", Target{Node: "empty"}, status, []string{"error: node empty: it has no agent's pod"}},
		"no such node":       {"admin", Target{Node: "other"}, status, []string{"error: the cluster has no node other; see: kubectl get nodes"}},
		"wrong namespace":    {"admin", Target{Namespace: "shop"}, status, []string{"error: no node has an agent: there is no pod with labels " + Selector + " in namespace shop"}},
		"only other's right": {"runner", Target{}, status, []string{`error: list the agents' pods: pods is forbidden: User "runner" cannot list`}},
		"may list only":      {"reader", Target{}, status, []string{"==> crashes", "node crashes: ", "==> image", "node image: ", "==> narrow", "node narrow: ", `nodes hangs, refuses, rolls: pods "weft-`, "error: 6 of 6 nodes failed: "}},
		"may nothing":        {"nobody", Target{}, status, []string{`error: list the agents' pods: pods is forbidden: User "nobody" cannot list`}},

		"a pod's node":          {"admin", Target{}, about("shop/web-0"), []string{"error: node crashes: " + crashes}},
		"other than its node":   {"admin", Target{Node: "narrow"}, about("shop/web-0"), []string{"error: node narrow: " + narrow}},
		"pod on no node":        {"admin", Target{}, about("shop/new-0"), []string{"error: pod shop/new-0 is on no node yet: the scheduler has said nothing of it yet; see: kubectl -n shop describe pod new-0"}},
		"pod of the host":       {"admin", Target{}, about("shop/host-0"), []string{"error: pod shop/host-0 uses the network of its node crashes (hostNetwork)"}},
		"pod is gone":           {"admin", Target{}, about("shop/web-9"), append([]string{"pod shop/web-9 is not in the API: all nodes are asked for it"}, all...)},
		"pod may not be read":   {"runner", Target{Namespace: "net"}, about("shop/web-0"), append([]string{"the node of pod shop/web-0 is not known, so all nodes are asked for it: "}, without...)},
		"an address, not a pod": {"admin", Target{}, about("10.0.0.1"), all},
	} {
		t.Run(name, func(t *testing.T) {
			c.target.Kubeconfig, c.target.Timeout = s.Kubeconfig(c.user), 2*time.Second
			var out strings.Builder
			if err := Run(t.Context(), c.target, c.command, &out, &out); err != nil {
				fmt.Fprintln(&out, "error:", err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", &out, strings.Join(c.want, "\n"))
			}
		})
	}

	t.Run("two namespaces", func(t *testing.T) {
		pod(s, "shop", "weft-other", on("empty"), runningAgent)
		err := Run(t.Context(), Target{Kubeconfig: s.Kubeconfig("admin")}, status, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "say which by -n: net, shop") {
			t.Errorf("%v, want both namespaces", err)
		}
	})
	t.Run("nodes", func(t *testing.T) {
		names, err := Nodes(t.Context(), Target{Kubeconfig: s.Kubeconfig("admin")})
		if want := "crashes empty hangs image narrow refuses rolls"; err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s, %v; want %s", names, err, want)
		}
	})
	t.Run("no API server", func(t *testing.T) {
		s.Stop()
		err := Run(t.Context(), Target{Kubeconfig: s.Kubeconfig("admin")}, status, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "does not answer; see: kubectl version") {
			t.Errorf("%v, want it to say that the API server does not answer", err)
		}
	})
}

// What is wrong with a kubeconfig is said with its name.
func TestNoCluster(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: b, context: {cluster: c}}, {name: a, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none")+":"+filepath.Join(dir, "neither"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, c := range map[string]struct {
		target Target
		want   string
	}{
		"malformed":     {Target{Kubeconfig: file("bad", "][")}, filepath.Join(dir, "bad")},
		"missing":       {Target{Kubeconfig: filepath.Join(dir, "none")}, filepath.Join(dir, "none") + ": no such file"},
		"empty":         {Target{Kubeconfig: file("empty", "")}, "no cluster in the kubeconfig " + filepath.Join(dir, "empty") + ": name another one by --kubeconfig or the variable KUBECONFIG"},
		"none":          {Target{}, filepath.Join(dir, "none") + ", " + filepath.Join(dir, "neither")},
		"wrong context": {Target{Kubeconfig: good, Context: "x"}, `"x" does not exist; the kubeconfig has the contexts [a b]`},
		"nobody there":  {Target{Kubeconfig: good}, `the API server http://127.0.0.1:1 of context "b" does not answer; see: kubectl version`},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), c.target, Command{Args: []string{"status"}}, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
