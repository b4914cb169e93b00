// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

var queryTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// clusterInput is node1's view of a cluster: node2 by VXLAN, node3 without a
// subnet, node4 unknown, and a pool that overlaps another.
func clusterInput(t *testing.T) reportInput {
	t.Helper()
	lease1 := leaseHeld("10.42.1.0/24", "node1", "198.18.0.1")
	lease2 := leaseHeld("10.42.2.0/24", "node2", "198.18.1.2")
	lease4 := leaseHeld("10.42.4.0/24", "node4", "198.18.1.4")
	store := registry.NewStore()
	store.Apply(
		registry.Change{Key: registry.Key{Kind: registry.Node, Name: "node1"}, Object: cluster.Node{Name: "node1"}},
		registry.Change{Key: registry.Key{Kind: registry.Node, Name: "node2"}, Object: cluster.Node{Name: "node2"}},
		registry.Change{Key: registry.Key{Kind: registry.Node, Name: "node3"}, Object: cluster.Node{Name: "node3", Addresses: []netip.Addr{netip.MustParseAddr("198.18.1.3")}}},
		registry.Change{Key: registry.Key{Kind: registry.IPPool, Name: "default"}, Object: poolOf("default", 1, "10.42.0.0/16")},
		registry.Change{Key: registry.Key{Kind: registry.IPPool, Name: "late"}, Object: poolOf("late", 2, "10.42.128.0/17")},
	)
	for _, l := range []cluster.Lease{lease1, lease2, lease4} {
		store.Apply(registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, Object: l})
	}
	store.Reject("file garbage.yaml", "line 1: not YAML")
	store.Synced(queryTime.Add(-time.Hour))
	route := func(dst, gateway, dev string) reconcile.Object {
		r := topology.Route{Dev: dev}
		if gateway != "" {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		return reconcile.Object{Key: topology.RouteKey{Dst: netip.MustParsePrefix(dst)}, Value: r, State: reconcile.InSync, Origin: "SubnetLease of " + dst}
	}
	failing := route("10.42.3.0/24", "198.18.0.3", "uplink0")
	failing.State, failing.Err = reconcile.Failed, errors.New("something foreign is in the way")
	return reportInput{
		now: queryTime, node: "node1", objects: store, backend: topology.Auto,
		underlay: []topology.Underlay{{Addr: netip.MustParsePrefix("198.18.0.1/24"), Dev: "uplink0", MTU: 1500}},
		keeper:   leasing.Status{Held: []cluster.Lease{lease1}, Since: queryTime.Add(-time.Minute)},
		blocks:   []lease.Block{{Subnet: lease1.Subnet, Size: 253, Free: 250}},
		reach: []topology.Reach{
			{Lease: lease1.Name(), Node: "node1", Subnet: lease1.Subnet, Way: topology.Local},
			{Lease: lease2.Name(), Node: "node2", Subnet: lease2.Subnet, Way: topology.ByVXLAN, Dev: "weft-vxlan"},
			{Lease: lease4.Name(), Node: "node4", Subnet: lease4.Subnet, Way: topology.Unreachable, Reason: "node4 is not known"},
		},
		kinds: []reconcile.Status{{Kind: "links", Desired: 1, InSyncSince: queryTime.Add(-time.Minute), LastResync: queryTime.Add(-time.Second)}},
		routes: []reconcile.Object{
			route("10.42.2.0/24", "10.42.2.0", "weft-vxlan"), failing, route("10.42.1.0/24", "", ""),
			{Key: topology.RouteKey{Dst: netip.MustParsePrefix("10.42.1.1/32"), Local: true}, Value: topology.Route{}, State: reconcile.Pending, Origin: "gateway"},
		},
		pods: podRecords(t),
	}
}

func leaseHeld(subnet, node, address string) cluster.Lease {
	return cluster.Lease{
		Subnet: netip.MustParsePrefix(subnet), Pool: "default", Node: node, Created: queryTime.Add(-2 * time.Hour).UnixNano(),
		Addresses: []netip.Addr{netip.MustParseAddr(address)}, VTEP: cluster.VTEP{MAC: attach.MAC{2, 0, 0, 0, 0, 1}, VNI: 119, Port: 4789},
	}
}

func poolOf(name string, created int64, cidr string) cluster.Pool {
	return cluster.Pool{Name: name, Created: created, Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix(cidr), BlockBits: 24}}}
}

func podRecords(t *testing.T) []facts.Record {
	t.Helper()
	f := facts.New()
	done := attach.Key{Network: "net", ContainerID: "c1", Ifname: "eth0"}
	half := attach.Key{Network: "net", ContainerID: "c2", Ifname: "eth0"}
	for _, encode := range []func() (string, error){
		func() (string, error) {
			return facts.EncodeIntent(1, done, facts.Veth, []netip.Addr{netip.MustParseAddr("10.42.1.7")}, facts.Detail{Pod: attach.Pod{Namespace: "lab", Name: "a"}})
		},
		func() (string, error) { return facts.EncodeComplete(2, done) },
		func() (string, error) {
			return facts.EncodeIntent(3, half, facts.Veth, []netip.Addr{netip.MustParseAddr("10.42.1.8")}, facts.Detail{})
		},
	} {
		entry, err := encode()
		if err == nil {
			err = f.Apply(entry)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f.Records()
}

func rowsOf[R interface{ Cells() []string }](rows []R) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, strings.Join(r.Cells(), " | "))
	}
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if want = strings.TrimSpace(want); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func TestReport(t *testing.T) {
	r := buildReport(clusterInput(t), true)
	expect(t, "subsystems", rowsOf(r.Subsystems), `
configuration | ok |  |  | in effect
registry | ok | 2026-01-02T02:04:05Z |  | 3 nodes, 1 pool, 3 leases, 0 pods; revision 4
pools | ok |  |  | default 10.42.0.0/16 in blocks of /24
underlay | ok |  |  | 198.18.0.1/24 dev uplink0 mtu 1500; backend auto
leases | ok | 2026-01-02T03:03:05Z |  | held: 10.42.1.0/24
peers | ok |  |  | 2 nodes: 0 leases native, 1 by VXLAN, 1 unreachable
kernel links | ok | 2026-01-02T03:03:05Z |  | 1 in sync; read 1s ago in 0s`)
	var rejected []string
	for _, o := range r.Rejected {
		rejected = append(rejected, o.Object+": "+o.Reason)
	}
	expect(t, "rejected", strings.Join(rejected, "\n"), `
file garbage.yaml: line 1: not YAML
IPPool late: 10.42.128.0/17 overlaps 10.42.0.0/16 of IPPool default, which is in use; give it another range
SubnetLease 10-42-4-0-24 of node4: node4 is not known`)
	const vtep = "02:00:00:00:00:01 vni 119 port 4789"
	expect(t, "nodes", rowsOf(r.Nodes), `
node1 | 198.18.0.1 | 10.42.1.0/24 | self |  | `+vtep+` | ok
node2 | 198.18.1.2 | 10.42.2.0/24 | vxlan | weft-vxlan | `+vtep+` | ok
node3 | 198.18.1.3 |  |  |  |  | ok, but it has no subnet yet
node4 | 198.18.1.4 | 10.42.4.0/24 | unreachable |  | `+vtep+` | not known: leases name it, but there is no Node object`)
	expect(t, "leases", rowsOf(r.Leases), `
10-42-1-0-24 | 10.42.1.0/24 | default | node1 | local | 2h0m0s | 250 of 253 | in use here
10-42-2-0-24 | 10.42.2.0/24 | default | node2 | vxlan | 2h0m0s |  | ok
10-42-4-0-24 | 10.42.4.0/24 | default | node4 | unreachable | 2h0m0s |  | rejected: node4 is not known`)
	host := func(c string) string {
		return attach.Key{Network: "net", ContainerID: c, Ifname: "eth0"}.HostIfname()
	}
	expect(t, "routes", rowsOf(r.Routes), `
10.42.1.0/24 |  |  | unreachable | in sync | SubnetLease of 10.42.1.0/24
10.42.1.1/32 |  |  | local | pending | gateway
10.42.1.7/32 |  | `+host("c1")+` | pod | in sync | Pod lab/a
10.42.1.8/32 |  | `+host("c2")+` | pod | pending: intent | attachment net/c2/eth0
10.42.2.0/24 | 10.42.2.0 | weft-vxlan | vxlan | in sync | SubnetLease of 10.42.2.0/24
10.42.3.0/24 | 198.18.0.3 | uplink0 | native | failing: something foreign is in the way | SubnetLease of 10.42.3.0/24`)
	if brief := buildReport(clusterInput(t), false); brief.Nodes != nil || brief.Leases != nil || brief.Routes != nil ||
		rowsOf(brief.Subsystems) != rowsOf(r.Subsystems) || len(brief.Rejected) != len(r.Rejected) {
		t.Errorf("the brief report: %+v", brief)
	}
}

func TestReportOfANodeOfItsOwn(t *testing.T) {
	r := buildReport(reportInput{now: queryTime, pods: podRecords(t)}, true)
	expect(t, "subsystems", rowsOf(r.Subsystems), `
configuration | ok |  |  | in effect
registry | idle |  |  | no cluster is configured: this is a node of its own`)
	if len(r.Nodes) != 0 || len(r.Leases) != 0 || len(r.Routes) != 2 {
		t.Errorf("%+v", r)
	}
}

// Each line of status says what is wrong, and what is pending is no problem.
func TestSubsystemsInTrouble(t *testing.T) {
	lost := errors.New("directory /registry: no such file or directory")
	for name, c := range map[string]struct {
		change func(*reportInput)
		want   string
	}{
		"configuration": {
			func(in *reportInput) { in.configuration = errors.New("line 3: unknown field") },
			"configuration | problem |  |  | not in effect, the previous one is: line 3: unknown field",
		},
		"registry": {
			func(in *reportInput) { in.objects.Unreachable(lost, queryTime) },
			"registry | problem | 2026-01-02T03:04:05Z |  | unreachable: " + lost.Error() +
				"; what is known stays in use, no block is taken or given back; known: 3 nodes, 1 pool, 3 leases, 0 pods; revision 4",
		},
		"registry, at first": {
			func(in *reportInput) { in.objects = registry.NewStore() },
			"registry | pending |  |  | not everything has arrived yet, so nothing is changed for the cluster's sake; so far: 0 nodes, 0 pools, 0 leases, 0 pods; revision 0",
		},
		"pools": {
			func(in *reportInput) { in.objects = registry.NewStore() },
			"pools | idle |  |  | no IPPool that can be used",
		},
		"underlay": {
			func(in *reportInput) { in.lost = errors.New("no default route") },
			"underlay | problem |  |  | no default route; still used: 198.18.0.1/24 dev uplink0 mtu 1500",
		},
		"leases": {
			func(in *reportInput) { in.keeper = leasing.Status{Waiting: []string{"no block is free"}} },
			"leases | problem |  |  | waiting: no block is free; none held",
		},
		"leases, at first": {
			func(in *reportInput) { in.keeper = leasing.Status{} },
			"leases | pending |  |  | none held",
		},
		"leases, after a failure": {
			func(in *reportInput) { in.keeper.LastErr, in.keeper.ErrAt = lost, queryTime },
			"leases | ok | 2026-01-02T03:03:05Z |  | held: 10.42.1.0/24; last error 2026-01-02T03:04:05Z: " + lost.Error(),
		},
		"leases, failing": {
			func(in *reportInput) { in.keeper.Err, in.keeper.LastErr, in.keeper.ErrAt = lost, lost, queryTime },
			"leases | problem | 2026-01-02T03:03:05Z |  | held: 10.42.1.0/24; last error 2026-01-02T03:04:05Z: " + lost.Error(),
		},
		"kind closed": {
			func(in *reportInput) { in.kinds = []reconcile.Status{{Kind: "fdb", Closed: true}} },
			"kernel fdb | pending |  |  | untouched until the registry has delivered everything and the underlay is known",
		},
		"kind pending": {
			func(in *reportInput) { in.kinds = []reconcile.Status{{Kind: "fdb", Desired: 7, Pending: 2}} },
			"kernel fdb | pending |  | 2 | 2 of 7 to be done",
		},
		"kind awaiting": {
			func(in *reportInput) {
				former := errors.New("add route 10.42.3.7/32: the former sandbox behind weft0 still has the address")
				f := reconcile.Failing{Object: "route 10.42.3.7/32", Verb: delta.Add, Err: former, Attempts: 4, Since: queryTime, Next: queryTime.Add(time.Second)}
				in.kinds = []reconcile.Status{{Kind: "routes", Desired: 7, Pending: 1, Awaiting: []reconcile.Failing{f}}}
			},
			"kernel routes | pending |  | 1 | add route 10.42.3.7/32: the former sandbox behind weft0 still has the address; " +
				"4 attempts since 2026-01-02T03:04:05Z, again in 1s",
		},
		"kind failing, in words of its own": {
			func(in *reportInput) {
				f := reconcile.Failing{Object: "link weft-vxlan", Verb: delta.Add, Err: errors.New("add link weft-vxlan: in the way"), Attempts: 1, Since: queryTime}
				in.kinds = []reconcile.Status{{Kind: "links", Desired: 1, Pending: 1, Failing: []reconcile.Failing{f}}}
			},
			"kernel links | problem |  | 1 | add link weft-vxlan: in the way; 1 attempt since 2026-01-02T03:04:05Z, again in 0s",
		},
		"kind failing": {
			func(in *reportInput) {
				foreign := errors.New("exists and is not ours")
				f := reconcile.Failing{
					Object: "route 10.42.3.0/24", Verb: delta.Add, Err: foreign, Attempts: 3, Since: queryTime, Next: queryTime.Add(4 * time.Second),
				}
				in.kinds = []reconcile.Status{{Kind: "routes", Desired: 7, Pending: 2, Failing: []reconcile.Failing{f, f}, LastError: foreign, LastErrorAt: queryTime}}
			},
			"kernel routes | problem |  | 2 | add route 10.42.3.0/24: exists and is not ours; 3 attempts since 2026-01-02T03:04:05Z, again in 4s; and 1 more",
		},
	} {
		in := clusterInput(t)
		c.change(&in)
		if got := rowsOf(buildReport(in, false).Subsystems); !strings.Contains("\n"+got+"\n", "\n"+c.want+"\n") {
			t.Errorf("%s: no line\n%s\nin\n%s", name, c.want, got)
		}
	}
}

func TestAnswerQuery(t *testing.T) {
	var settled, everything int
	ask := func(query string, err error) wire.Response {
		return answerQuery(t.Context(), query, func(context.Context) error { settled++; return nil }, func(all bool) (report.Report, error) {
			if all {
				everything++
			}
			return report.Report{Subsystems: []report.Subsystem{{Subsystem: "x", State: report.Good}}}, err
		})
	}
	for _, query := range []string{report.Status, report.Sync, report.Everything} {
		resp := ask(query, nil)
		var r report.Report
		if err := json.Unmarshal(resp.Output, &r); err != nil || resp.Failed || len(r.Subsystems) != 1 {
			t.Errorf("%s: %+v, %v", query, resp, err)
		}
	}
	if settled != 1 || everything != 1 {
		t.Errorf("waited %d times, was asked for everything %d times", settled, everything)
	}
	for query, err := range map[string]error{"future": nil, report.Status: errors.New("the journal is gone")} {
		if resp := ask(query, err); !resp.Failed || !strings.Contains(string(resp.Output), `"code"`) {
			t.Errorf("%s: %+v", query, resp)
		}
	}
}

// The report of a large cluster fits into an answer, with room to grow.
func TestLargeReportFits(t *testing.T) {
	in := clusterInput(t)
	const leases = 10_000
	in.routes, in.reach = nil, nil
	changes := make([]registry.Change, 0, leases)
	for i := range leases {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		l := leaseHeld(subnet.String(), fmt.Sprintf("a-node-with-a-long-name-%05d.example.org", i), "198.18.1.2")
		changes = append(changes, registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, Object: l})
		in.reach = append(in.reach, topology.Reach{Lease: l.Name(), Node: l.Node, Subnet: subnet, Way: topology.ByVXLAN, Dev: "weft-vxlan"})
		in.routes = append(in.routes, reconcile.Object{
			Key: topology.RouteKey{Dst: subnet}, Value: topology.Route{Gateway: subnet.Addr(), Dev: "weft-vxlan"}, State: reconcile.InSync,
			Origin: "SubnetLease " + l.Name() + " of " + l.Node,
		})
	}
	in.objects.Apply(changes...)
	raw, err := json.Marshal(buildReport(in, true))
	if err != nil || len(raw) < 1<<20 || len(raw) > wire.MaxAnswer/4 {
		t.Errorf("%d bytes of %d, %v", len(raw), wire.MaxAnswer, err)
	}
	t.Logf("%d leases: %d bytes", leases, len(raw))
}

func TestQueryThatPanics(t *testing.T) {
	resp := answerQuery(t.Context(), report.Status, nil, func(bool) (report.Report, error) { panic("oops") })
	if !resp.Failed || !strings.Contains(string(resp.Output), "oops") {
		t.Errorf("%+v", resp)
	}
}

func TestQueryOverTheSocket(t *testing.T) {
	large := report.Report{Subsystems: []report.Subsystem{{Subsystem: "x", Detail: strings.Repeat("x", 2*wire.MaxMessage)}}}
	socket := serving(t, func(ctx context.Context, r wire.Request, netns int) (wire.Response, func()) {
		closeFD(netns)
		return answerQuery(ctx, r.Query, func(context.Context) error { return nil }, func(bool) (report.Report, error) { return large, nil }), nil
	})
	resp, err := wire.Call(socket, wire.Request{Query: report.Everything}, -1, soon())
	var got report.Report
	if err == nil {
		err = json.Unmarshal(resp.Output, &got)
	}
	if err != nil || resp.Failed || len(got.Subsystems) != 1 || got.Subsystems[0] != large.Subsystems[0] {
		t.Errorf("%d bytes, failed %v, %v", len(resp.Output), resp.Failed, err)
	}
}
