// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCluster runs a cluster through its life: up, pods with the reference
// plugins, outages, a reboot, nodes that come and go, and down.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Kubernetes cluster")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "weft-cl-")
	if err != nil {
		t.Fatal(err)
	}
	taint := corev1.Taint{Key: "weft.dev/test", Effect: corev1.TaintEffectNoSchedule}
	c, err := Up(ctx, Options{
		Dir:    dir,
		CNI:    installPTP,
		Taints: []corev1.Taint{taint},
		Log:    t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs are in %s", c.LogDir())
		} else {
			os.RemoveAll(dir)
		}
	})
	first := c.Nodes[0]

	t.Run("taints", func(t *testing.T) { checkTaint(ctx, t, c, taint) })
	if _, err := c.Kubectl(ctx, "taint", "nodes", "--all", taint.Key+"-"); err != nil {
		t.Fatal(err)
	}
	t.Run("pods", func(t *testing.T) { checkPods(ctx, t, c) })
	t.Run("outage of the API server", func(t *testing.T) { checkOutage(ctx, t, c) })
	t.Run("components", func(t *testing.T) { checkComponents(ctx, t, first) })
	t.Run("reboot", func(t *testing.T) { checkReboot(ctx, t, c, c.Nodes[0]) })
	t.Run("one more node", func(t *testing.T) { checkAddNode(ctx, t, c) })
	t.Run("second cluster", func(t *testing.T) { checkSecond(ctx, t) })
	t.Run("down", func(t *testing.T) { checkDown(t, c) })
}

// installPTP installs the reference plugins with a subnet per node, and routes
// to the other nodes'. The node's number is the last one of its address.
func installPTP(n *Node) error {
	dir := filepath.Dir(n.c.bins["loopback"])
	for _, plugin := range []string{"ptp", "host-local"} {
		if err := copyProgram(filepath.Join(dir, plugin), filepath.Join(n.BinDir, plugin)); err != nil {
			return err
		}
	}
	number := n.Addresses[0].As4()[3]
	for other := byte(nodeOffset + 1); other < nodeOffset+4; other++ {
		if other == number {
			continue
		}
		_, err := n.Exec(context.Background(), "ip", "route", "add", fmt.Sprintf("10.244.%d.0/24", other), "via", fmt.Sprintf("198.18.0.%d", other))
		if err != nil {
			return err
		}
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"ptp","ipMasq":true,
		"ipam":{"type":"host-local","subnet":"10.244.%d.0/24","routes":[{"dst":"0.0.0.0/0"}]}}]}`, number)
	return os.WriteFile(filepath.Join(n.ConfDir, "10-test.conflist"), []byte(conf), 0o644)
}

func checkTaint(ctx context.Context, t *testing.T, c *Cluster, want corev1.Taint) {
	nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 2 {
		t.Fatalf("found %d nodes, want 2", len(nodes.Items))
	}
	for _, n := range nodes.Items {
		found := false
		for _, taint := range n.Spec.Taints {
			found = found || taint.MatchTaint(&want)
		}
		if !found {
			t.Errorf("%s has taints %v, want %v among them", n.Name, n.Spec.Taints, want)
		}
	}
}

// checkPods has a server on one node, and a client on the other that reaches it
// through DNS and kube-proxy.
func checkPods(ctx context.Context, t *testing.T, c *Cluster) {
	createPod(ctx, t, c, "web", c.Nodes[0].Name, ImageAgnhost, "/agnhost", "netexec", "--http-port=80")
	createPod(ctx, t, c, "client", c.Nodes[1].Name, ImageToolbox, "/bin/sleep", "100000")
	_, err := c.Client().CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"name": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, c, "web")
	waitReady(ctx, t, c, "client")
	if _, err := c.Kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	fetchByName(ctx, t, c)
	if out, err := c.Kubectl(ctx, "exec", "client", "--", "iperf3", "--version"); err != nil {
		t.Errorf("iperf3 in the toolbox: %v: %s", err, out)
	}
	checkCgroups(t, c)
	pods, err := c.Nodes[0].Ctr(ctx, "containers", "list")
	if err != nil || !strings.Contains(pods, ImageAgnhost) {
		t.Errorf("containers of node1: %v:\n%s\nwant one of %s", err, pods, ImageAgnhost)
	}
}

// checkCgroups looks for containers' cgroups in the node's, which Down removes,
// in every hierarchy.
func checkCgroups(t *testing.T, c *Cluster) {
	t.Helper()
	dirs, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		pattern := filepath.Join(dir, c.Nodes[0].host.cgroup, "k8s.io", "*", "tasks")
		if containers, err := filepath.Glob(pattern); err != nil || len(containers) < 2 {
			t.Errorf("cgroups %s: %v, %v, want a sandbox's and a container's", pattern, containers, err)
		}
	}
}

// fetchByName asks the server for its name, by the name of the service.
func fetchByName(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	err := await(ctx, 60*time.Second, "the service", func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "exec", "client", "--", "timeout", "3", "wget", "-qO-", "http://web.default.svc.cluster.local/hostname")
		if err == nil && out != "web" {
			err = fmt.Errorf("expected the answer web, found %q", out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func createPod(ctx context.Context, t *testing.T, c *Cluster, name, node, image string, command ...string) {
	t.Helper()
	_, err := c.Client().CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/hostname": node},
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullNever, Command: command,
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func waitReady(ctx context.Context, t *testing.T, c *Cluster, pod string) {
	t.Helper()
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "pod/"+pod); err != nil {
		out, _ := c.Kubectl(ctx, "describe", "pod", pod)
		t.Fatalf("%v\n%s", err, out)
	}
}

func checkOutage(ctx context.Context, t *testing.T, c *Cluster) {
	if err := c.StopAPI(); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, time.Second) // the client tries for 10 s
	defer cancel()
	if _, err := c.Client().CoreV1().Nodes().List(soon, metav1.ListOptions{}); err == nil {
		t.Fatal("the API server answers after StopAPI")
	}
	if err := c.StartAPI(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatalf("the API server does not answer after StartAPI: %v", err)
	}
}

func checkComponents(ctx context.Context, t *testing.T, n *Node) {
	for _, component := range []string{"kubelet", "kube-proxy", "containerd"} {
		before, err := n.host.find(n.c.bins[component])
		if err != nil || before == 0 {
			t.Fatalf("%s: process %d, %v", component, before, err)
		}
		if err := n.Kill(component); err != nil {
			t.Fatal(err)
		}
		if pid, err := n.host.find(n.c.bins[component]); err != nil || pid != 0 {
			t.Fatalf("%s after Kill: process %d, %v", component, pid, err)
		}
		if err := n.Start(component); err != nil {
			t.Fatal(err)
		}
		if pid, err := n.host.find(n.c.bins[component]); err != nil || pid == 0 || pid == before {
			t.Fatalf("%s after Start: process %d (it was %d), %v", component, pid, before, err)
		}
	}
	metrics, err := n.Metrics(ctx)
	if err != nil || !strings.Contains(metrics, "# TYPE") {
		t.Errorf("metrics of containerd: %v: %.200s", err, metrics)
	}
	if err := n.Kill("kube-scheduler"); err == nil {
		t.Error("a node has no kube-scheduler, but Kill reports no error")
	}
}

func checkReboot(ctx context.Context, t *testing.T, c *Cluster, n *Node) {
	const bootID = "/proc/sys/kernel/random/boot_id"
	if err := os.WriteFile(filepath.Join(n.RunDir, "trace"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := n.Exec(ctx, "cat", bootID)
	if err != nil {
		t.Fatal(err)
	}
	space, err := os.Readlink(n.Netns)
	if err != nil {
		t.Fatal(err)
	}
	links, err := n.Exec(ctx, "ip", "-brief", "link", "show", "type", "veth")
	if err != nil || strings.Count(links, "\n") < 2 {
		t.Fatalf("links before the reboot: %v\n%s\nwant the uplink and a pod's", err, links)
	}
	if err := n.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := installPTP(n); err != nil { // the routes
		t.Fatal(err)
	}
	after, err := n.Exec(ctx, "cat", bootID)
	if err != nil || after == before {
		t.Errorf("boot id after the reboot: %q, %v, want another one than before", after, err)
	}
	if _, err := os.Stat(filepath.Join(n.RunDir, "trace")); err == nil {
		t.Error("a file in /run outlives the reboot")
	}
	if now, err := os.Readlink(n.Netns); err != nil || now == space {
		t.Errorf("network namespace after the reboot: %s, %v, want another one than before", now, err)
	}
	fetchByName(ctx, t, c) // the pod came back, with a new sandbox
	createPod(ctx, t, c, "boot", n.Name, ImageToolbox, "/bin/sleep", "100000")
	waitReady(ctx, t, c, "boot")
	inside, err := c.Kubectl(ctx, "exec", "boot", "--", "cat", bootID)
	if err != nil || inside != after {
		t.Errorf("boot id in a container: %q, %v, want the node's, %q", inside, err, after)
	}
}

func checkAddNode(ctx context.Context, t *testing.T, c *Cluster) {
	n, err := c.AddNode(ctx, "node3")
	if err != nil {
		t.Fatal(err)
	}
	createPod(ctx, t, c, "late", n.Name, ImageToolbox, "/bin/sleep", "100000")
	// Registered with a taint, like the others.
	if _, err := c.Kubectl(ctx, "taint", "nodes", n.Name, "weft.dev/test-"); err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, c, "late")
	if err := c.RemoveNode(ctx, n.Name); err != nil {
		t.Fatal(err)
	}
	if c.Node(n.Name) != nil {
		t.Error("a removed node is in Nodes")
	}
	if out, err := c.Kubectl(ctx, "get", "node", n.Name); err == nil {
		t.Errorf("the Node object of a removed node is there:\n%s", out)
	}
	if _, err := os.Stat(n.Dir); err == nil {
		t.Errorf("the directory of a removed node is there: %s", n.Dir)
	}
}

// checkSecond has a cluster of the other family beside the first one.
func checkSecond(ctx context.Context, t *testing.T) {
	c, err := Up(ctx, Options{Nodes: 1, Family: "dual", Proxy: "iptables"})
	if err != nil {
		t.Fatal(err)
	}
	dns, err := c.Client().CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil || len(dns.Spec.ClusterIPs) != 2 {
		t.Errorf("service of DNS: %v, %v, want two addresses", dns.Spec.ClusterIPs, err)
	}
	node, err := c.Client().CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	if err != nil {
		t.Error(err)
	}
	addresses := fmt.Sprint(node.Status.Addresses)
	for _, want := range c.Nodes[0].Addresses {
		if !strings.Contains(addresses, want.String()) {
			t.Errorf("addresses of the node are %s, want %s among them", addresses, want)
		}
	}
	checkDown(t, c)
	if _, err := os.Stat(c.Dir()); err == nil {
		t.Errorf("the temporary directory %s is there after Down", c.Dir())
	}
}

// checkDown takes a cluster down as another process would, twice, and looks for
// what it leaves behind.
func checkDown(t *testing.T, c *Cluster) {
	spaces := namespaces(t, c)
	if len(spaces) == 0 {
		t.Fatal("found no namespace of the running cluster")
	}
	loaded, err := Load(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if is, err := loaded.Running(); err != nil || !is {
		t.Fatalf("the loaded cluster is running: %v, %v, want true", is, err)
	}
	if len(loaded.Nodes) != len(c.Nodes) || loaded.Nodes[0].Netns != c.Nodes[0].Netns {
		t.Errorf("loaded nodes are %v, want %v", loaded.Nodes, c.Nodes)
	}
	start := time.Now()
	for range 2 {
		if err := loaded.Down(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("down after %s", time.Since(start))
	if is, err := c.Running(); err != nil || is {
		t.Errorf("the cluster is running after Down: %v, %v", is, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), c.Dir()) {
		t.Errorf("mounts after Down (%v):\n%s\nwant none with %s", err, mounts, c.Dir())
	}
	_ = filepath.WalkDir(cgroupRoot, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == c.cgroup() {
			t.Errorf("cgroup %s is there after Down", path)
		}
		return nil
	})
	eachProcess(t, func(proc string) {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if strings.Contains(string(cmdline), c.Dir()+"/") {
			t.Errorf("process %s is there after Down: %q", proc, cmdline)
		}
		for kind, id := range spacesOf(proc) {
			if spaces[id] {
				t.Errorf("process %s is in a %s namespace of the cluster after Down: %q", proc, kind, cmdline)
			}
		}
	})
}

// namespaces are those of the cluster's hosts and what runs there.
func namespaces(t *testing.T, c *Cluster) map[string]bool {
	own := spacesOf("/proc/self")
	hosts, err := holders(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	mounts := map[string]bool{}
	all := map[string]bool{}
	for _, pid := range hosts {
		mounts[spacesOf(fmt.Sprintf("/proc/%d", pid))["mnt"]] = true
	}
	eachProcess(t, func(proc string) {
		spaces := spacesOf(proc)
		if !mounts[spaces["mnt"]] {
			return
		}
		// What is outside of the cluster's cgroup, Down does not find.
		groups, err := os.ReadFile(filepath.Join(proc, "cgroup"))
		if err == nil && !strings.Contains(string(groups), ":memory:/"+c.cgroup()+"/") {
			t.Errorf("process %s of the cluster is in the cgroups\n%s\nwant them in /%s", proc, groups, c.cgroup())
		}
		for kind, id := range spaces {
			if id != own[kind] {
				all[id] = true
			}
		}
	})
	return all
}

func spacesOf(proc string) map[string]string {
	ids := map[string]string{}
	for _, kind := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		if id, err := os.Readlink(filepath.Join(proc, "ns", kind)); err == nil {
			ids[kind] = id
		}
	}
	return ids
}

func eachProcess(t *testing.T, f func(proc string)) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(all) == 0 {
		t.Fatalf("list processes: %v", err)
	}
	for _, proc := range all {
		f(proc)
	}
}
