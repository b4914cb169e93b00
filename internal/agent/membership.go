// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/directory"
	"weft.dev/weft/internal/registry/kubernetes"
)

// membership is this node's part in a cluster.
type membership struct {
	node     string // this node's name
	registry registry.Cluster
	pods     registry.Pods // nil where the registry knows no pods
	objects  *registry.Store
	keeper   *leasing.Keeper
	// createPool creates the pool that an installation begins with; nil: there is
	// none to create.
	createPool func(context.Context) error
	// single has an element while somebody creates or deletes leases of single
	// addresses.
	single chan struct{}
}

// claimSingle waits for the turn to create or delete leases of single addresses.
func (m *membership) claimSingle(ctx context.Context) (release func(), err error) {
	select {
	case m.single <- struct{}{}:
		return func() { <-m.single }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begins reports whether the first pool is this node's to create: the cluster has
// none, good or bad, and has had none, of which leases would tell.
func (m *membership) begins() (begins bool) {
	m.objects.View(func(s *registry.State) {
		begins = m.createPool != nil && s.Synced && len(s.Pools) == 0 && len(s.Leases) == 0
		for object := range s.Rejected {
			begins = begins && !strings.HasPrefix(object, string(registry.IPPool)+" ")
		}
	})
	return begins
}

// begin creates the first pool. Another node may be faster.
func (m *membership) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	if err := m.createPool(ctx); !errors.Is(err, registry.ErrExists) {
		return err
	}
	return nil
}

// namespace returns what is known of a namespace.
func (m *membership) namespace(name string) (n cluster.Namespace) {
	m.objects.View(func(s *registry.State) { n = s.Namespaces[name] })
	return n
}

// join wires the agent to its cluster, if it has one, and to the kernel.
func (a *Agent) join(ctx context.Context) error {
	c := a.inputs.config
	if c.Cluster == nil {
		a.fabric = fabric.New(nil, a.drivers())
		return nil
	}
	m := &membership{node: c.NodeName, objects: registry.NewStore(), single: make(chan struct{}, 1)}
	if err := m.open(c, a); err != nil {
		return err
	}
	a.cluster = m
	a.fabric = fabric.New(m.objects, a.drivers())
	if err := a.restore(ctx); err != nil {
		return err
	}
	config := leasing.Config{Node: m.node, IdleAfter: time.Duration(*c.Cluster.LeaseIdleAfter)}
	if a.inputs.restored != nil {
		config.Previous = a.inputs.restored.Pool.Subnets()
	}
	m.keeper = leasing.New(config, m.objects, m.registry, (*addresses)(a), a.inputs.identity, a.fabric.Rejected)
	return nil
}

// open opens the registry that the configuration names.
func (m *membership) open(c v1alpha1.AgentConfiguration, a *Agent) error {
	if k := c.Cluster.Kubernetes; k != nil {
		api, err := kubernetes.Open(kubernetes.Config{
			Kubeconfig: k.Kubeconfig, Server: k.Server, Node: c.NodeName, Version: a.version, Observe: a.metrics.Request,
		}, a.log)
		if err != nil {
			return err
		}
		m.registry, m.pods = api, api
		if spec := c.Cluster.InitialPool; spec != nil {
			m.createPool = func(ctx context.Context) error { return api.CreatePool(ctx, v1alpha1.InitialPool(*spec)) }
		}
		return nil
	}
	dir, err := directory.Open(c.Cluster.Directory, c.NodeName, a.log)
	m.registry = dir
	return err
}

// clusterName tells one registry from another, in the journal.
func clusterName(c *v1alpha1.ClusterConfiguration) string {
	if c.Kubernetes != nil {
		return engine.Kubernetes
	}
	return c.Directory
}

// follow keeps the objects current.
func (a *Agent) follow(ctx context.Context) {
	if err := a.cluster.registry.Run(ctx, a.cluster.objects); err != nil && ctx.Err() == nil {
		a.stop(fmt.Errorf("registry: %w", err))
	}
}

// identity is what this node's leases tell its peers, and the networks that it is
// part of itself.
func (in *inputs) identity() leasing.Identity {
	var id leasing.Identity
	for _, u := range in.underlay {
		id.Addresses = append(id.Addresses, u.Addr.Addr())
		id.Networks = append(id.Networks, lease.Network{Prefix: u.Addr.Masked(), Dev: u.Dev})
	}
	b := in.config.Network.Backend
	if b.Type != topology.Native {
		id.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC(in.config.NodeName), VNI: uint32(b.VNI), Port: uint16(b.Port)}
	}
	return id
}

// readCluster takes in what the registry says about this node and the pools. A
// view without this node's own object is not complete, whatever the source says:
// a volume that is not mounted looks like that.
func (a *Agent) readCluster() {
	if a.cluster == nil {
		return
	}
	a.cluster.objects.View(func(s *registry.State) {
		if a.read.revision == s.Revision && a.read.synced == s.Synced {
			return // passes are many, and this looks at every lease
		}
		a.read.revision, a.read.synced = s.Revision, s.Synced
		a.readHolders(s)
		a.readState(s)
	})
	if len(a.read.outside) > 0 {
		a.inputs.outside = notRefused(a.read.outside, a.fabric.Reach())
	} else {
		a.inputs.outside = nil
	}
}

func (a *Agent) readHolders(s *registry.State) {
	kept := wish.HoldersOf(s.Claims, s.Leases)
	a.kept.Store(&kept)
}

// readState takes in a state that is new.
func (a *Agent) readState(s *registry.State) {
	in := &a.inputs
	if n, there := s.Nodes[a.cluster.node]; there && s.Synced {
		in.node = &n
	}
	if in.synced = in.node != nil; !in.synced {
		return
	}
	pools := make([]cluster.Pool, 0, len(s.Pools))
	for _, p := range s.Pools {
		pools = append(pools, p)
	}
	in.pools, _ = cluster.AcceptPools(pools, maps.Values(s.Leases))
	a.read.outside, a.read.single, in.known = nil, nil, nil
	for _, l := range s.Leases {
		own := l.Node == a.cluster.node
		switch {
		case l.Pod != "" && own:
			a.read.single = append(a.read.single, l)
		case l.Pod != "":
		case own && len(in.known) < len(l.Addresses):
			in.known = l.Addresses
		}
		if !inside(l.Subnet, in.pools) {
			a.read.outside = append(a.read.outside, l.Subnet)
		}
	}
}

// notRefused returns the subnets, ascending, but for those of leases that have
// been found to be of no use.
func notRefused(subnets []netip.Prefix, reach []topology.Reach) []netip.Prefix {
	refused := map[netip.Prefix]bool{}
	for _, r := range reach {
		if r.Way == topology.Unreachable {
			refused[r.Subnet] = true
		}
	}
	subnets = slices.DeleteFunc(slices.Clone(subnets), func(s netip.Prefix) bool { return refused[s] })
	slices.SortFunc(subnets, netip.Prefix.Compare)
	return subnets
}

func inside(subnet netip.Prefix, pools []cluster.Pool) bool {
	for _, p := range pools {
		for _, r := range p.Ranges {
			if r.CIDR.Bits() <= subnet.Bits() && r.CIDR.Overlaps(subnet) {
				return true
			}
		}
	}
	return false
}

// notGranted reports addresses that the node gives no more: an ADD may have
// begun with the network of a moment ago.
func (a *Agent) notGranted(addr netip.Addr) bool {
	_, _, granted := a.network.Load().Pool.Find(addr)
	return !granted
}

// whyNot says why no pod can be attached now, for want of leases or of what the
// registry says; "" if one can.
func (a *Agent) whyNot() string {
	if a.cluster == nil {
		return ""
	}
	missing := a.inputs.missing(a.network.Load().Ordinary().Pool)
	// Where there are pods, somebody may keep an address of a block of this
	// node, or the block may be another's by now: what the journal had is not
	// enough.
	unknown := a.cluster.pods != nil && !a.inputs.decided
	if missing == "" && !unknown {
		return ""
	}
	why := strings.Join(a.cluster.keeper.Status().Waiting, "; ")
	if err := a.poolless.now(); err != nil {
		why = fmt.Sprintf("there is no IPPool: %v", err)
	}
	a.cluster.objects.View(func(s *registry.State) {
		switch {
		case s.Err != nil:
			why = "the registry is out of reach: " + s.Err.Error()
		case !s.Synced:
			why = "the registry has not told its state yet"
		case !a.inputs.synced:
			why = "the registry has no Node " + a.cluster.node
		}
	})
	if missing == "" {
		return fmt.Sprintf("node %s does not know yet which addresses are its to give: %s", a.cluster.node, why)
	}
	return fmt.Sprintf("node %s has no %s subnet yet: %s", a.cluster.node, missing, why)
}
