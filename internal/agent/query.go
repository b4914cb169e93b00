// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

// answerQuery answers a question of the operator's commands. ask makes the
// report, with everything or with the subsystems and rejections alone; settled
// returns when the kernel has what the registry has told by now.
func answerQuery(
	ctx context.Context, query string, settled func(context.Context) error, ask func(everything bool) (report.Report, error),
) (resp wire.Response) {
	refuse := func(err *cni.Error) wire.Response {
		return wire.Response{Output: err.Encode(cni.NewestVersion), Failed: true}
	}
	// A question must not be what ends the agent.
	defer func() {
		if p := recover(); p != nil {
			resp = refuse(cni.Errorf(cni.CodeInternal, "internal error in the agent: %v; please report it\n%s", p, debug.Stack()))
		}
	}()
	switch query {
	case report.Sync:
		_ = settled(ctx) // the report says what is missing
	case report.Status, report.Everything:
	default:
		return refuse(cni.Errorf(cni.CodeUnsupportedField, "query %q: this agent answers %s, %s and %s; use the weft of its release",
			query, report.Status, report.Sync, report.Everything))
	}
	r, err := ask(query == report.Everything)
	if err != nil {
		return refuse(cni.AsError(err))
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return refuse(cni.AsError(err))
	}
	return wire.Response{Output: raw}
}

// reportInput is what a report is made from.
type reportInput struct {
	now time.Time

	runtime       *report.Subsystem // what the container runtime is told; nil: it is not the agent who tells it
	configuration error             // why the present content of the configuration file is not in effect; nil: it is

	node     string          // this node's name; "" without a cluster, and then the next ones are zero too
	objects  *registry.Store // nil without a cluster
	backend  topology.Backend
	underlay []topology.Underlay
	poolless error // why the first IPPool could not be created; nil: none is missing
	lost     error // why there is no place in the underlay now; nil: there is
	keeper   leasing.Status
	blocks   []lease.Block // that addresses are given from
	reach    []topology.Reach

	kinds  []reconcile.Status
	routes []reconcile.Object // desired ones, of the main and the local table
	pods   []facts.Record     // attachments and reservations
}

// snapshot is the part of the store's state that a report shows, sorted by
// name.
type snapshot struct {
	nodes    []cluster.Node
	pools    []cluster.Pool
	leases   []cluster.Lease
	pods     int
	rejected []report.Rejection

	revision uint64
	synced   bool
	err      error
	since    time.Time
}

func snapshotOf(store *registry.Store) (s snapshot) {
	var pools []cluster.Pool
	store.View(func(state *registry.State) {
		s = snapshot{
			nodes: sorted(state.Nodes), leases: sorted(state.Leases), pods: len(state.Pods),
			revision: state.Revision, synced: state.Synced, err: state.Err, since: state.Since,
		}
		pools = sorted(state.Pools)
		for _, object := range slices.Sorted(maps.Keys(state.Rejected)) {
			s.rejected = append(s.rejected, report.Rejection{Object: object, Reason: state.Rejected[object]})
		}
	})
	var refused []cluster.Rejection
	s.pools, refused = cluster.AcceptPools(pools, slices.Values(s.leases))
	for _, r := range refused {
		s.rejected = append(s.rejected, report.Rejection(r))
	}
	return s
}

func sorted[V any](m map[string]V) []V {
	list := make([]V, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[name])
	}
	return list
}

// buildReport makes a report. Without everything it has no nodes, leases and
// routes, whose number depends on the cluster.
func buildReport(in reportInput, everything bool) report.Report {
	var r report.Report
	r.Subsystems = append(r.Subsystems, configurationStatus(in.configuration))
	if in.runtime != nil {
		r.Subsystems = append(r.Subsystems, *in.runtime)
	}
	var s snapshot
	if in.objects == nil {
		r.Subsystems = append(r.Subsystems, report.Subsystem{
			Subsystem: "registry", State: report.Idle, Detail: "no cluster is configured: this is a node of its own",
		})
	} else {
		s = snapshotOf(in.objects)
		r.Subsystems = append(r.Subsystems, registryStatus(s), poolStatus(s, in.poolless), underlayStatus(in), leaseStatus(in), peerStatus(in))
		r.Rejected = append(s.rejected, rejectedLeases(in.reach)...)
	}
	for _, k := range in.kinds {
		r.Subsystems = append(r.Subsystems, kindStatus(k, in.now))
	}
	if everything {
		r.Nodes, r.Leases, r.Routes = nodeRows(in, s), leaseRows(in, s), routeRows(in)
	}
	return r
}

// rejectedLeases are those that no way leads to.
func rejectedLeases(reach []topology.Reach) (list []report.Rejection) {
	for _, r := range reach {
		if r.Way == topology.Unreachable {
			list = append(list, report.Rejection{Object: "SubnetLease " + r.Lease + " of " + r.Node, Reason: r.Reason})
		}
	}
	return list
}

// nodeRows lists the nodes that are known, and those that only a lease names.
func nodeRows(in reportInput, s snapshot) []report.Node {
	rows := map[string]*report.Node{}
	for _, n := range s.nodes {
		rows[n.Name] = &report.Node{Name: n.Name, Addresses: slices.Clone(n.Addresses), State: "ok"}
	}
	for _, l := range s.leases {
		n := rows[l.Node]
		if n == nil {
			n = &report.Node{Name: l.Node, State: "not known: leases name it, but there is no Node object"}
			rows[l.Node] = n
		}
		n.Subnets = append(n.Subnets, l.Subnet)
		for _, a := range l.Addresses {
			if !slices.Contains(n.Addresses, a) {
				n.Addresses = append(n.Addresses, a)
			}
		}
		if v := vtepOf(l.VTEP); v != "" {
			n.VTEP = v
		}
	}
	for _, r := range in.reach {
		if n := rows[r.Node]; n != nil {
			addReach(n, r)
		}
	}
	list := make([]report.Node, 0, len(rows))
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		n := rows[name]
		slices.SortFunc(n.Subnets, netip.Prefix.Compare)
		slices.Sort(n.Devices)
		n.Devices = slices.Compact(n.Devices)
		if len(n.Subnets) == 0 {
			n.State = "ok, but it has no subnet yet"
		}
		list = append(list, *n)
	}
	return list
}

func addReach(n *report.Node, r topology.Reach) {
	way := string(r.Way)
	if r.Way == topology.Local {
		way = "self"
	}
	switch n.Way {
	case "", way:
		n.Way = way
	default:
		n.Way = "mixed"
	}
	if r.Dev != "" && r.Way != topology.Local {
		n.Devices = append(n.Devices, r.Dev)
	}
	if r.Way == topology.Unreachable && n.State == "ok" {
		n.State = "SubnetLease " + r.Lease + ": " + r.Reason
	}
}

func leaseRows(in reportInput, s snapshot) []report.Lease {
	reach := make(map[string]topology.Reach, len(in.reach))
	for _, r := range in.reach {
		reach[r.Lease] = r
	}
	rows := make([]report.Lease, 0, len(s.leases))
	for _, l := range s.leases {
		name := l.Name()
		r := reach[name]
		row := report.Lease{
			Name: name, Subnet: l.Subnet, Pool: l.Pool, Node: l.Node, Way: string(r.Way), State: "ok",
		}
		if l.Pod != "" {
			row.State = "ok, of pod " + l.Pod
		}
		if l.Created != 0 {
			created := time.Unix(0, l.Created).UTC()
			row.Created, row.Age = created, in.now.Sub(created).Truncate(time.Second).String()
		}
		switch {
		case r.Way == topology.Unreachable:
			row.State = "rejected: " + r.Reason
		case slices.ContainsFunc(in.keeper.Held, func(h cluster.Lease) bool { return h.Subnet == l.Subnet }):
			row.State, row.Use = "in use here", useOf(in.blocks, l.Subnet)
		case l.Pod != "":
		case l.Node == in.node:
			row.State = "not in use here"
		case r.Way == "":
			row.State = "pending"
		}
		rows = append(rows, row)
	}
	return rows
}

func useOf(blocks []lease.Block, subnet netip.Prefix) *report.Use {
	for _, b := range blocks {
		if b.Subnet == subnet {
			return &report.Use{Size: b.Size, Free: b.Free}
		}
	}
	return nil
}

// routeRows lists the routes that the reconciler keeps, then those of pods,
// ascending by destination.
func routeRows(in reportInput) []report.Route {
	var rows []report.Route
	for _, o := range in.routes {
		key, isRoute := o.Key.(topology.RouteKey)
		value, _ := o.Value.(topology.Route)
		if !isRoute {
			continue
		}
		row := report.Route{
			Destination: key.Dst, Gateway: value.Gateway, Dev: value.Dev, Kind: kindOf(key, value),
			State: string(o.State), Origin: o.Origin,
		}
		if o.Err != nil {
			row.State += ": " + o.Err.Error()
		}
		rows = append(rows, row)
	}
	for _, rec := range in.pods {
		rows = append(rows, podRoutes(rec)...)
	}
	slices.SortStableFunc(rows, func(a, b report.Route) int { return a.Destination.Compare(b.Destination) })
	return rows
}

func kindOf(k topology.RouteKey, r topology.Route) string {
	switch {
	case k.Local:
		return "local"
	case k.LastResort:
		return "last resort"
	case !r.Gateway.IsValid():
		return "unreachable"
	case r.Dev == topology.VXLANDevice4 || r.Dev == topology.VXLANDevice6:
		return "vxlan"
	}
	return "native"
}

// podRoutes returns the host's routes to one attachment: one for each of its
// addresses. The attachment's phase says whether the kernel has them.
func podRoutes(rec facts.Record) []report.Route {
	if rec.Kind != facts.Veth {
		return nil
	}
	origin := "attachment " + rec.Key.String()
	if d, err := rec.Detail(); err == nil && d.Pod.Name != "" {
		origin = "Pod " + d.Pod.String()
	}
	state := string(reconcile.InSync)
	if rec.Phase != facts.Complete {
		state = string(reconcile.Pending) + ": " + rec.Phase.String()
	}
	var rows []report.Route
	for _, a := range rec.Addresses {
		rows = append(rows, report.Route{
			Destination: netip.PrefixFrom(a, a.BitLen()), Dev: rec.Key.HostIfname(), Kind: "pod", State: state, Origin: origin,
		})
	}
	return rows
}

func vtepOf(v cluster.VTEP) string {
	if v == (cluster.VTEP{}) {
		return ""
	}
	return fmt.Sprintf("%s vni %d port %d", v.MAC, v.VNI, v.Port)
}
