// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options says what cluster to run. The zero value is two IPv4 workers.
type Options struct {
	// Dir holds state, logs and the kubeconfig. Empty: a temporary directory
	// that Down removes. A short path, for sockets in it have at most 107 bytes.
	Dir string
	// Nodes is the number of workers, 2 if 0: "node1", "node2", ...
	Nodes int
	// Family is "ipv4" (default), "ipv6" or "dual".
	Family string
	// Proxy is kube-proxy's mode, "nftables" (default) or "iptables".
	Proxy string
	// Images are docker archives that every node imports besides pause,
	// agnhost, toolbox and CoreDNS.
	Images []string
	// Taints are what every kubelet registers its node with.
	Taints []corev1.Taint
	// CNI installs plugins and configuration on a node before its kubelet
	// starts. Nil: the node has the reference loopback plugin, no configuration.
	CNI func(n *Node) error `json:"-"`
	// AuditPolicy is a file with an audit policy; the log is LogDir/audit.log.
	AuditPolicy string
	// Log gets a line per step. Nil: silent.
	Log func(format string, args ...any) `json:"-"`
}

// Names of images that every node has.
const (
	ImagePause   = "weft.dev/pause:test"
	ImageAgnhost = "registry.k8s.io/e2e-test-images/agnhost:test"
	ImageToolbox = "weft.dev/toolbox:test" // busybox with all its applets in /bin (its wget crashes with -T), iperf3
	ImageCoreDNS = "weft.dev/coredns:test"
)

// Cluster is a running cluster. Its methods may be called from several
// goroutines, but not Down, AddNode, RemoveNode or Reboot at the same time.
type Cluster struct {
	Nodes []*Node

	opts   Options
	family family
	bins   binaries
	cp     *host
	config *rest.Config
	client kubernetes.Interface
	// temporary says that Down removes the directory.
	temporary bool
	nextIndex int
	started   time.Time
}

// Up starts a cluster and returns when its nodes have registered. They are
// NotReady, and CoreDNS is Pending, until there is a network. If it fails, it
// leaves nothing but the logs.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster in %s (logs are in %s): %w", c.opts.Dir, c.LogDir(), err), c.stop())
	}
	return c, nil
}

// newCluster completes the options and makes the directory, in which no cluster
// may be running.
func newCluster(o Options) (*Cluster, error) {
	c := &Cluster{opts: o, started: time.Now(), nextIndex: 1}
	if c.opts.Nodes == 0 {
		c.opts.Nodes = 2
	}
	if c.opts.Proxy == "" {
		c.opts.Proxy = "nftables"
	}
	if c.opts.Log == nil {
		c.opts.Log = func(string, ...any) {}
	}
	var err error
	if c.family, err = parseFamily(o.Family); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		c.temporary = true
		if c.opts.Dir, err = os.MkdirTemp("", "weft-cluster-"); err != nil {
			return nil, fmt.Errorf("make directory for the cluster: %w", err)
		}
	}
	if c.opts.Dir, err = filepath.Abs(c.opts.Dir); err != nil {
		return nil, fmt.Errorf("resolve directory of the cluster: %w", err)
	}
	for _, hidden := range []string{"/run/", "/proc/", "/sys/", "/dev/", "/var/log/", "/etc/", "/opt/"} {
		if strings.HasPrefix(c.opts.Dir+"/", hidden) {
			return nil, fmt.Errorf("use directory %s: nodes have their own %s, choose a directory outside of it", c.opts.Dir, hidden)
		}
	}
	running, err := holders(c.opts.Dir)
	if err != nil {
		return nil, err
	}
	if len(running) > 0 {
		return nil, fmt.Errorf("start cluster in %s: one is running there, stop it first (cluster down)", c.opts.Dir)
	}
	c.cp = c.host(controlPlane)
	return c, nil
}

// start brings everything up, in the order in which one thing needs another.
func (c *Cluster) start(ctx context.Context) error {
	// What an earlier cluster in this directory has left.
	if err := c.removeState(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.LogDir(), 0o755); err != nil {
		return fmt.Errorf("make directory for logs: %w", err)
	}
	if err := c.save(); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.startControlPlaneHost(ctx); err != nil {
		return err
	}
	nodes := make([]*Node, c.opts.Nodes)
	for i := range nodes {
		nodes[i] = c.newNode(fmt.Sprintf("node%d", i+1))
	}
	if err := c.save(); err != nil {
		return err
	}
	steps := []func() error{func() error { return c.startControlPlane(ctx) }}
	for _, n := range nodes {
		steps = append(steps, func() error { return n.prepare(ctx) })
	}
	if err := together(steps...); err != nil {
		return err
	}
	steps = steps[:0]
	for _, n := range nodes {
		steps = append(steps, func() error { return n.join(ctx) })
	}
	return together(append(steps, func() error { return c.deployDNS(ctx) })...)
}

// prepare gets binaries and images.
func (c *Cluster) prepare(ctx context.Context) error {
	var err error
	if c.bins, err = buildBinaries(ctx, filepath.Join(c.opts.Dir, "bin")); err != nil {
		return err
	}
	c.step("binaries are there")
	if err := c.makeImages(); err != nil {
		return err
	}
	c.step("images are there")
	return c.makePKI()
}

// step reports progress with the time since the start.
func (c *Cluster) step(format string, args ...any) {
	c.opts.Log("%5.1fs  %s", time.Since(c.started).Seconds(), fmt.Sprintf(format, args...))
}

// Down stops everything and removes namespaces, mounts and cgroups. Of the
// directory it leaves the logs, or nothing if the directory was a temporary one.
// Nothing to do is no error.
func (c *Cluster) Down() error {
	err := c.stop()
	if c.temporary {
		err = errors.Join(err, os.RemoveAll(c.opts.Dir))
	}
	return err
}

// stop is Down without removing the logs.
func (c *Cluster) stop() error {
	running, err := holders(c.opts.Dir)
	if err != nil {
		return err
	}
	var kills []func() error
	for _, pid := range running {
		kills = append(kills, func() error { return killAndWait(pid) })
	}
	return errors.Join(together(kills...), removeCgroups(c.cgroup()), c.removeState())
}

// removeState deletes all in the directory but the logs.
func (c *Cluster) removeState() error {
	var errs []error
	for _, name := range []string{"nodes", "etcd", "pki", "bin", "images", "conf", "kubeconfig", stateFile} {
		errs = append(errs, os.RemoveAll(filepath.Join(c.opts.Dir, name)))
	}
	return errors.Join(errs...)
}

// Dir is the directory of the cluster.
func (c *Cluster) Dir() string { return c.opts.Dir }

// LogDir has the log of every component in one directory: etcd.log,
// kube-apiserver.log, node1-kubelet.log, ...
func (c *Cluster) LogDir() string { return filepath.Join(c.opts.Dir, "logs") }

// Kubeconfig is the administrator's. Its server is a port on 127.0.0.1 of the
// machine, so it works in any shell, also as a copy.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.opts.Dir, "kubeconfig") }

// RESTConfig is the administrator's, a copy.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Client is the administrator's.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// connect makes the client from the kubeconfig.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig(), err)
	}
	config.QPS = -1 // tests wait for the cluster, not for the client
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client from %s: %w", c.Kubeconfig(), err)
	}
	c.config, c.client = config, client
	return nil
}

// Kubectl runs kubectl as the administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return run(ctx, nil, append([]string{c.bins["kubectl"], "--kubeconfig", c.Kubeconfig()}, args...)...)
}

// Node is the node with the name, or nil.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// AddNode starts one more node and returns when it has registered.
func (c *Cluster) AddNode(ctx context.Context, name string) (*Node, error) {
	if name == controlPlane || c.Node(name) != nil {
		return nil, fmt.Errorf("add node %s: the name is in use", name)
	}
	n := c.newNode(name)
	if err := c.save(); err != nil {
		return nil, err
	}
	if err := n.prepare(ctx); err != nil {
		return nil, fmt.Errorf("add node %s: %w", name, err)
	}
	if err := n.join(ctx); err != nil {
		return nil, fmt.Errorf("add node %s: %w", name, err)
	}
	return n, nil
}

// RemoveNode stops a node at once, without draining, deletes its Node object and
// all of its state.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	n := c.Node(name)
	if n == nil {
		return fmt.Errorf("remove node %s: there is no such node", name)
	}
	if err := n.stop(); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	c.Nodes = slices.DeleteFunc(c.Nodes, func(o *Node) bool { return o == n })
	if err := c.save(); err != nil {
		return err
	}
	err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", name, err)
	}
	return nil
}
