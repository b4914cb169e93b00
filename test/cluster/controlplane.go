// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiPort is the API server's on the control plane.
const apiPort = 6443

// server is the API server's URL for the nodes.
func (c *Cluster) server() string {
	return "https://" + netip.AddrPortFrom(c.family.addresses(1)[0], apiPort).String()
}

// conf is the path of a configuration file of the control plane.
func (c *Cluster) conf(name string) string { return filepath.Join(c.opts.Dir, "conf", name) }

// startControlPlaneHost makes the host and the segment that nodes are joined to.
func (c *Cluster) startControlPlaneHost(ctx context.Context) error {
	if err := c.cp.boot(c.bins["pause"]); err != nil {
		return err
	}
	return c.makeSegment(ctx)
}

// startControlPlane starts what runs on the control plane and returns when the
// API server and the controllers work.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := os.MkdirAll(c.conf(""), 0o755); err != nil {
		return fmt.Errorf("make directory for configuration: %w", err)
	}
	if err := c.spawnControl("etcd",
		"--name=cp",
		"--data-dir="+filepath.Join(c.opts.Dir, "etcd"),
		"--unsafe-no-fsync", // a power cut of the machine ends the cluster anyway
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
	); err != nil {
		return err
	}
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	c.step("API server is ready")
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := c.writeKubeconfig(c.conf(name), c.server(), "system:"+name, ""); err != nil {
			return err
		}
	}
	if err := c.spawnControl("kube-controller-manager",
		"--kubeconfig="+c.conf("kube-controller-manager"),
		"--root-ca-file="+c.pki("ca.crt"),
		"--service-account-private-key-file="+c.pki("service-account.key"),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--allocate-node-cidrs=false",
		"--node-monitor-period=2s",
		"--node-monitor-grace-period=10s",
		"--kube-api-qps=200", "--kube-api-burst=400",
	); err != nil {
		return err
	}
	if err := c.spawnControl("kube-scheduler", "--kubeconfig="+c.conf("kube-scheduler"), "--leader-elect=false"); err != nil {
		return err
	}
	err := await(ctx, 60*time.Second, "the controllers (a service account in namespace default)", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	c.step("controllers are running")
	return nil
}

// spawnControl starts a program on the control plane.
func (c *Cluster) spawnControl(name string, args ...string) error {
	return c.cp.spawn(filepath.Join(c.LogDir(), name+".log"), nil, append([]string{c.bins[name]}, args...)...)
}

// publish makes the API server reachable from the machine: a socket that
// listens there is given to a process that connects from the control plane.
func (c *Cluster) publish() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	defer func() { _ = listener.Close() }() // the copy goes on listening
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	defer socket.Close()
	to := netip.AddrPortFrom(c.family.addresses(1)[0], apiPort).String()
	if err := c.cp.spawn(filepath.Join(c.LogDir(), "forward.log"), socket, c.bins["forward"], to); err != nil {
		return err
	}
	if err := c.writeKubeconfig(c.Kubeconfig(), "https://"+listener.Addr().String(), "admin", "system:masters"); err != nil {
		return err
	}
	return c.connect()
}

// StopAPI kills the API server. etcd and the controllers go on. Connections to
// the port on the machine are accepted and closed; client-go repeats a GET for
// 10 s then, unless its context ends.
func (c *Cluster) StopAPI() error {
	pid, err := c.cp.find(c.bins["kube-apiserver"])
	if err != nil || pid == 0 {
		return err
	}
	return killAndWait(pid)
}

// StartAPI starts the API server, if it is not running, and returns when it is
// ready.
func (c *Cluster) StartAPI() error { return c.startAPI(context.Background()) }

func (c *Cluster) startAPI(ctx context.Context) error {
	pid, err := c.cp.find(c.bins["kube-apiserver"])
	if err != nil {
		return err
	}
	if pid == 0 {
		if err := c.spawnControl("kube-apiserver", c.apiServerArgs()...); err != nil {
			return err
		}
	}
	if c.client == nil {
		if err := c.publish(); err != nil {
			return err
		}
	}
	return await(ctx, 60*time.Second, "the API server", func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=http://127.0.0.1:2379",
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--bind-address=" + map[bool]string{false: "0.0.0.0", true: "::"}[c.family[0].v6 || len(c.family) > 1],
		"--advertise-address=" + c.family.addresses(1)[0].String(),
		"--tls-cert-file=" + c.pki("kube-apiserver.crt"),
		"--tls-private-key-file=" + c.pki("kube-apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("kubelet-client.key"),
		// Or exec and logs look the nodes up in DNS.
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("service-account.crt"),
		"--service-account-signing-key-file=" + c.pki("service-account.key"),
		"--service-cluster-ip-range=" + c.family.list(func(i int) string { return c.family[i].services }),
		"--allow-privileged",
		"--profiling=false",
	}
	if c.opts.AuditPolicy != "" {
		args = append(args, "--audit-policy-file="+c.opts.AuditPolicy, "--audit-log-path="+filepath.Join(c.LogDir(), "audit.log"))
	}
	return args
}
