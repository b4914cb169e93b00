// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// ifname is the interface that every pod gets, as in Kubernetes.
const ifname = "eth0"

// cniRuntime is the part of a container runtime that speaks CNI, of one node.
type cniRuntime struct {
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	l    layout
	node string
}

func (l *lab) runtime(n Node) (*cniRuntime, error) {
	list, err := libcni.NetworkConfFromFile(l.l.conflist(n.Name))
	if err != nil {
		return nil, fmt.Errorf("%s: read network configuration: %w", n.Name, err)
	}
	path := append([]string{l.BinDir}, l.spec.PluginDirs...)
	return &cniRuntime{
		cni:  libcni.NewCNIConfigWithCacheDir(path, l.l.cache(n.Name), newNodeExec(l.l.netns(n.Name))),
		list: list,
		l:    l.l,
		node: n.Name,
	}, nil
}

// conf names a pod to the plugins as containerd and CRI-O do.
func (r *cniRuntime) conf(p Pod) *libcni.RuntimeConf {
	c := &libcni.RuntimeConf{
		ContainerID: p.ContainerID,
		IfName:      ifname,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", PodNamespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID},
		},
	}
	if path := r.l.netns(p.Name); pinned(path) {
		c.NetNS = path // else it is gone or was never made, which DEL must take
	}
	if len(p.Requested) > 0 {
		c.CapabilityArgs = map[string]any{"ips": p.Requested}
	}
	return c
}

// add attaches the pod and returns its addresses. Requested addresses travel
// as the "ips" capability; libcni drops it silently where no plugin declares
// it, so that is refused here.
func (r *cniRuntime) add(ctx context.Context, p Pod) ([]netip.Prefix, error) {
	if len(p.Requested) > 0 && !r.capable("ips") {
		return nil, fmt.Errorf("request addresses %v: no plugin of network %s declares the capability \"ips\"", p.Requested, r.list.Name)
	}
	result, err := r.cni.AddNetworkList(ctx, r.list, r.conf(p))
	if err != nil {
		return nil, fmt.Errorf("ADD: %w", err)
	}
	return addresses(result)
}

func (r *cniRuntime) capable(capability string) bool {
	return slices.ContainsFunc(r.list.Plugins, func(p *libcni.PluginConfig) bool {
		return p.Network.Capabilities[capability]
	})
}

func (r *cniRuntime) del(ctx context.Context, p Pod) error {
	if err := r.cni.DelNetworkList(ctx, r.list, r.conf(p)); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	return nil
}

func (r *cniRuntime) check(ctx context.Context, p Pod) error {
	if err := r.cni.CheckNetworkList(ctx, r.list, r.conf(p)); err != nil {
		return fmt.Errorf("CHECK: %w", err)
	}
	return nil
}

func (r *cniRuntime) status(ctx context.Context) error {
	if err := r.cni.GetStatusNetworkList(ctx, r.list); err != nil {
		return fmt.Errorf("STATUS: %w", err)
	}
	return nil
}

// addresses returns the pod's addresses out of a result, in its order.
func addresses(result types.Result) ([]netip.Prefix, error) {
	res, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		p, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return nil, fmt.Errorf("read result: address: %w", err)
		}
		addrs = append(addrs, p)
	}
	return addrs, nil
}

// nodeExec executes plugins in the network namespace of a node, which is where
// they find "the host's" interfaces. Everything else is libcni's own.
type nodeExec struct {
	invoke.Exec
	netns string
}

func newNodeExec(netns string) *nodeExec {
	return &nodeExec{
		Exec: &invoke.DefaultExec{
			RawExec:       &invoke.RawExec{},
			PluginDecoder: version.PluginDecoder{},
		},
		netns: netns,
	}
}

func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) (out []byte, err error) {
	entered := inNetns(e.netns, func() error {
		out, err = e.Exec.ExecPlugin(ctx, path, stdin, env)
		return nil
	})
	if entered != nil {
		return nil, entered
	}
	// As it is: libcni's callers tell errors apart by their type.
	return out, err
}
