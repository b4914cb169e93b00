// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a worker. Its paths are the machine's names of what the node sees
// under stock paths.
type Node struct {
	Name      string
	Addresses []netip.Addr // the primary family's first
	Netns     string       // path of the network namespace; Reboot makes another one

	Dir     string // everything of the node
	Root    string // Root+P is the node's P for P in /etc/cni, /opt/cni, /var/lib/{kubelet,containerd,cni}, /var/log
	BinDir  string // /opt/cni/bin
	ConfDir string // /etc/cni/net.d
	RunDir  string // /run, which is in memory; Reboot makes another one

	c     *Cluster
	host  *host
	index int
}

// newNode makes a node with the next address and adds it to the cluster.
func (c *Cluster) newNode(name string) *Node {
	n := c.makeNode(name, c.nextIndex)
	c.nextIndex++
	c.Nodes = append(c.Nodes, n)
	return n
}

func (c *Cluster) makeNode(name string, index int) *Node {
	h := c.host(name)
	root := filepath.Join(h.dir, "root")
	return &Node{
		Name:      name,
		Addresses: c.family.addresses(nodeOffset + index),
		Dir:       h.dir,
		Root:      root,
		BinDir:    filepath.Join(root, "opt/cni/bin"),
		ConfDir:   filepath.Join(root, "etc/cni/net.d"),
		c:         c,
		host:      h,
		index:     index,
	}
}

// prepare makes a node on which all is ready for a kubelet.
func (n *Node) prepare(ctx context.Context) error {
	if err := n.boot(ctx); err != nil {
		return err
	}
	if err := copyProgram(n.c.bins["loopback"], filepath.Join(n.BinDir, "loopback")); err != nil {
		return err
	}
	if err := n.start(ctx, "containerd"); err != nil {
		return err
	}
	for _, archive := range n.c.archives() {
		if err := n.Import(ctx, archive); err != nil {
			return err
		}
	}
	n.c.step("%s: containerd has its images", n.Name)
	if n.c.opts.CNI != nil {
		if err := n.c.opts.CNI(n); err != nil {
			return fmt.Errorf("install CNI plugins on %s: %w", n.Name, err)
		}
	}
	return nil
}

// boot starts the host and connects it.
func (n *Node) boot(ctx context.Context) error {
	if err := n.host.boot(n.c.bins["pause"]); err != nil {
		return err
	}
	if err := n.locate(); err != nil {
		return err
	}
	return n.c.connectNode(ctx, n)
}

// join starts what needs the API server and waits for the Node object.
func (n *Node) join(ctx context.Context) error {
	if err := n.writeNodeConfig(); err != nil {
		return err
	}
	if err := n.start(ctx, "kubelet"); err != nil {
		return err
	}
	err := await(ctx, 60*time.Second, "registration of "+n.Name, func(ctx context.Context) error {
		_, err := n.c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	n.c.step("%s has registered", n.Name)
	// Not earlier: it looks for the Node object, once and then after half a minute.
	return n.start(ctx, "kube-proxy")
}

// locate sets Netns and RunDir.
func (n *Node) locate() error {
	pid, err := n.host.pid()
	if err != nil {
		return err
	}
	n.Netns, n.RunDir = netns(pid), runDir(pid)
	return nil
}

// Exec runs a command in all of the node's namespaces, as a login there would,
// and returns its standard output. An error has the standard error.
func (n *Node) Exec(ctx context.Context, argv ...string) (string, error) {
	return n.host.exec(ctx, argv...)
}

// Enter runs f in the node's network and mount namespaces, on a thread of its
// own; processes that f starts are in its PID namespace, too. f must not leave
// work to other goroutines.
func (n *Node) Enter(f func() error) error { return n.host.enter(f) }

// Ctr runs ctr in containerd's namespace k8s.io.
func (n *Node) Ctr(ctx context.Context, args ...string) (string, error) {
	return n.Exec(ctx, append([]string{n.c.bins["ctr"], "--namespace", "k8s.io"}, args...)...)
}

// Import imports a docker or OCI archive; the path is the machine's.
func (n *Node) Import(ctx context.Context, archive string) error {
	archive, err := filepath.Abs(archive) // ctr runs in the node's root
	if err != nil {
		return err
	}
	_, err = n.Ctr(ctx, "images", "import", "--no-unpack=false", archive)
	return err
}

// Metrics are containerd's.
func (n *Node) Metrics(ctx context.Context) (string, error) {
	return n.host.get(ctx, "http://"+metricsAddress+"/v1/metrics")
}

// Get fetches an URL with a literal address from the node's network namespace,
// for example the kubelet's http://127.0.0.1:10248/healthz.
func (n *Node) Get(ctx context.Context, url string) (string, error) { return n.host.get(ctx, url) }

// Kill sends SIGKILL to "kubelet", "containerd" or "kube-proxy" and returns when
// it has ended. Not running is no error.
func (n *Node) Kill(component string) error {
	if _, _, err := n.command(component); err != nil {
		return err
	}
	pid, err := n.host.find(n.c.bins[component])
	if err != nil || pid == 0 {
		return err
	}
	return killAndWait(pid)
}

// Start starts "kubelet", "containerd" or "kube-proxy", if it is not running,
// and returns when it answers.
func (n *Node) Start(component string) error { return n.start(context.Background(), component) }

func (n *Node) start(ctx context.Context, component string) error {
	argv, ready, err := n.command(component)
	if err != nil {
		return err
	}
	pid, err := n.host.find(n.c.bins[component])
	if err != nil {
		return err
	}
	if pid == 0 {
		if component == "containerd" {
			if err := n.writeContainerdConfig(ctx); err != nil {
				return err
			}
		}
		logfile := filepath.Join(n.c.LogDir(), n.Name+"-"+component+".log")
		if err := n.host.spawn(logfile, nil, argv...); err != nil {
			return err
		}
	}
	return await(ctx, 60*time.Second, component+" on "+n.Name, ready)
}

// Reboot is a power cut: every process of the node ends at once, with network
// namespaces, links, mounts and what is in /run. The node starts again with
// another boot id, containerd, kube-proxy and kubelet, and what was on its disk.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.stop(); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	if err := n.newBootID(); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	for _, component := range []string{"containerd", "kube-proxy", "kubelet"} {
		if err := n.start(ctx, component); err != nil {
			return fmt.Errorf("reboot %s: %w", n.Name, err)
		}
	}
	return nil
}

// stop pulls the plug and removes the node's cgroups.
func (n *Node) stop() error {
	return errors.Join(n.host.kill(), removeCgroups(n.host.cgroup))
}

// copyProgram copies an executable file; the copy appears at once and whole.
func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to+".new", data, 0o755)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}

// runDir is the machine's name for /run of the host with that holder.
func runDir(pid int) string { return fmt.Sprintf("/proc/%d/root/run", pid) }
