// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// metricsAddress is where containerd has its metrics, on every node.
const metricsAddress = "127.0.0.1:1338"

// file is the path of a configuration file of the node.
func (n *Node) file(name string) string { return filepath.Join(n.Dir, name) }

// command is how a component is started and how to see that it works.
func (n *Node) command(component string) ([]string, func(context.Context) error, error) {
	healthy := func(url string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := n.host.get(ctx, url)
			return err
		}
	}
	switch component {
	case "containerd":
		return []string{n.c.bins["containerd"], "--config", n.file("containerd.toml")},
			func(ctx context.Context) error {
				_, err := n.Ctr(ctx, "version")
				return err
			}, nil
	case "kubelet":
		return []string{n.c.bins["kubelet"],
			"--config=" + n.file("kubelet.yaml"),
			"--kubeconfig=" + n.file("kubelet.kubeconfig"),
			"--cert-dir=/var/lib/kubelet/pki",
			"--hostname-override=" + n.Name,
			"--node-ip=" + n.c.family.list(func(i int) string { return n.Addresses[i].String() }),
		}, healthy("http://127.0.0.1:10248/healthz"), nil
	case "kube-proxy":
		return []string{n.c.bins["kube-proxy"], "--config=" + n.file("kube-proxy.yaml"), "--hostname-override=" + n.Name},
			healthy("http://127.0.0.1:10249/metrics"), nil
	}
	return nil, nil, fmt.Errorf("choose component of %s: expected kubelet, containerd or kube-proxy, found %q", n.Name, component)
}

// writeContainerdConfig writes what differs from containerd's defaults.
func (n *Node) writeContainerdConfig(ctx context.Context) error {
	base, err := n.baseSpec(ctx)
	if err != nil {
		return err
	}
	const plugin = "io.containerd.cri.v1.runtime"
	config := fmt.Sprintf(`version = 3

[metrics]
  address = %[1]q

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %[2]q

[plugins.'%[3]s']
  # The machine may lack CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true

[plugins.'%[3]s'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  base_runtime_spec = %[4]q

[plugins.'%[3]s'.containerd.runtimes.runc.options]
  BinaryName = %[5]q
  SystemdCgroup = false
`, metricsAddress, ImagePause, plugin, base, n.c.bins["runc"])
	if err := os.WriteFile(n.file("containerd.toml"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("write configuration of containerd: %w", err)
	}
	return nil
}

// writeNodeConfig writes the configurations and credentials of kubelet and
// kube-proxy.
func (n *Node) writeNodeConfig() error {
	if err := n.c.writeKubeconfig(n.file("kubelet.kubeconfig"), n.c.server(), "system:node:"+n.Name, "system:nodes"); err != nil {
		return err
	}
	if err := n.c.writeKubeconfig(n.file("kube-proxy.kubeconfig"), n.c.server(), "system:kube-proxy", ""); err != nil {
		return err
	}
	if err := writeYAML(n.file("kubelet.yaml"), n.kubeletConfig()); err != nil {
		return err
	}
	return writeYAML(n.file("kube-proxy.yaml"), map[string]any{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"mode":               n.c.opts.Proxy,
		"clientConnection":   map[string]any{"kubeconfig": n.file("kube-proxy.kubeconfig")},
		"metricsBindAddress": "127.0.0.1:10249",
		// The machine's, and read-only in other network namespaces.
		"conntrack": map[string]any{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
}

func (n *Node) kubeletConfig() map[string]any {
	return map[string]any{
		"apiVersion":     "kubelet.config.k8s.io/v1beta1",
		"kind":           "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": n.c.pki("ca.crt")}},
		"authorization":  map[string]any{"mode": "Webhook"},

		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"cgroupDriver":             "cgroupfs",
		"cgroupsPerQOS":            false,
		"enforceNodeAllocatable":   []string{},
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"oomScoreAdj":              0,
		"volumePluginDir":          "/var/lib/kubelet/volumeplugins",

		"clusterDomain":      "cluster.local",
		"clusterDNS":         []string{n.c.family[0].dns},
		"resolvConf":         "", // pods have no business with the machine's
		"registerWithTaints": n.c.opts.Taints,
		"maxPods":            250,

		// The node monitor waits 10 s: the lease is renewed every 2 s.
		"nodeLeaseDurationSeconds":  8,
		"nodeStatusUpdateFrequency": "2s",
		"nodeStatusReportFrequency": "1m",

		// The machine's disk is not the cluster's, and bursts are what tests do.
		"imageGCHighThresholdPercent": 100,
		"evictionHard":                map[string]string{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"serializeImagePulls":         false,
		"eventRecordQPS":              0,
		"eventBurst":                  1000,
		"kubeAPIQPS":                  200,
		"kubeAPIBurst":                400,
	}
}

func writeYAML(path string, v any) error {
	data, err := yaml.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// baseSpec is the file with what every container of the node starts from, empty
// for containerd's own. After a reboot that is containerd's with a hook that
// shows containers the node's boot id: each has a /proc of its own, and runc
// refuses mounts there.
func (n *Node) baseSpec(ctx context.Context) (string, error) {
	if _, err := os.Stat(n.file("boot_id")); err != nil {
		return "", nil
	}
	text, err := n.host.exec(ctx, n.c.bins["ctr"], "oci", "spec")
	if err != nil {
		return "", err
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return "", fmt.Errorf("parse containerd's default spec: %w", err)
	}
	// runc runs it in the container's mount namespace, in what will be its root.
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{
		"path": "/usr/bin/mount",
		"args": []string{"mount", "--no-mtab", "--bind", n.file("boot_id"), "proc/sys/kernel/random/boot_id"},
	}}}
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode containers' base spec: %w", err)
	}
	path := n.file("base-spec.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return "", fmt.Errorf("write containers' base spec: %w", err)
	}
	return path, nil
}

// newBootID makes the boot id of the node's next boot.
func (n *Node) newBootID() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err == nil {
		err = os.WriteFile(n.file("boot_id"), id, 0o444)
	}
	if err != nil {
		return fmt.Errorf("make boot id: %w", err)
	}
	return nil
}
