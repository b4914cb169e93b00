// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

// writes is the writing side of a registry, without failures.
type writes struct {
	registry.Source
	*registrytest.Client
}

// world is an agent in a cluster, as far as ADDs have to do with it.
type world struct {
	*Agent
	objects *registrytest.Registry
	feed    *registrytest.Feed
}

// pods returns the agent of node1, which has a block of pool default and one of
// pool blue, which is for those who ask. 10.42.250.0/24 is reserved.
func pods(t *testing.T) *world {
	t.Helper()
	a := recording(t)
	objects := registrytest.New(time.Unix(1000, 0))
	for _, p := range []cluster.Pool{
		{Name: "default", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.42.0.0/16"), BlockBits: 24}}, Reserved: prefixes("10.42.250.0/24")},
		{Name: "blue", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.43.0.0/16"), BlockBits: 24}}, OnRequest: true},
	} {
		objects.Put(registry.Key{Kind: registry.IPPool, Name: p.Name}, p)
	}
	own := []cluster.Lease{leaseOf("10.42.1.0/24", "default"), leaseOf("10.43.1.0/24", "blue")}
	for _, l := range append(own, cluster.Lease{Subnet: netip.MustParsePrefix("10.42.2.0/24"), Pool: "default", Node: "node2"}) {
		objects.Put(registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, l)
	}
	a.cluster.registry = writes{nil, objects.Client(nil)}
	a.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	a.engine = &engine.Engine{Store: a.store, Now: time.Now}
	a.inputs.served, a.inputs.decided, a.inputs.synced = own, true, true
	objects.Put(registry.Key{Kind: registry.Node, Name: "node1"}, cluster.Node{Name: "node1", UID: "n1"})
	a.cluster.keeper = leasing.New(leasing.Config{Node: "node1"}, a.cluster.objects, a.cluster.registry, (*addresses)(a), a.inputs.identity, func() map[string]string { return nil })
	a.inputs.underlay = []topology.Underlay{underlay("198.18.1.11/24", 1500)}
	ready := ""
	a.unready.Store(&ready)
	w := &world{Agent: a, objects: objects, feed: objects.Connect(a.cluster.objects)}
	w.see()
	n, err := a.inputs.network()
	if err != nil {
		t.Fatal(err)
	}
	a.network.Store(&network{Network: n})
	return w
}

// see lets the agent take in what has changed in the registry.
func (w *world) see() {
	w.feed.Deliver(w.feed.Pending())
	w.readCluster()
	seen := w.inputs
	w.seen.Store(&seen)
}

// pod puts a pod of this node into the registry.
func (w *world) pod(name string, annotations map[string]string) {
	p := cluster.Pod{
		Namespace: "shop", Name: name, UID: "uid-" + name, Node: "node1", Annotations: annotations,
		Controller: cluster.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "ss"},
	}
	w.objects.Put(registry.Key{Kind: registry.Pod, Name: p.Key()}, p)
	w.see()
}

// ask has the network found for an ADD of the pod.
func (w *world) ask(name string) (*errand, cni.Config, engine.Network, *cni.Error) {
	return w.askWith(context.Background(), name, nil)
}

// askWith does so for a call that ends with ctx, with ports of the host.
func (w *world) askWith(ctx context.Context, name string, ports []attach.Port) (*errand, cni.Config, engine.Network, *cni.Error) {
	e := &errand{Agent: w.Agent, ctx: ctx, verb: cni.Add, key: attach.Key{Network: "weft", ContainerID: "new", Ifname: "eth0"}}
	cfg := cni.Config{Name: "weft", Args: cni.Args{Pod: attach.Pod{Namespace: "shop", Name: name, UID: "uid-" + name}}, Ports: ports}
	// The registry of the test knows pods by its watch alone, so there is nobody to ask.
	w.cluster.pods = nobody{}
	n, cerr := e.network(&cfg)
	return e, cfg, n, cerr
}

// nobody is a registry.Pods that knows no pod and takes note of claims.
type nobody struct{ registry.Pods }

func (nobody) Pod(context.Context, string, string) (cluster.Pod, error) {
	return cluster.Pod{}, registry.ErrGone
}

func (nobody) PodWith(context.Context, netip.Addr) (string, error) { return "", nil }

func TestNetworkOfPod(t *testing.T) {
	cases := map[string]struct {
		annotations map[string]string
		want        string // subnets to choose from, addresses to take, MTU; or a part of the refusal
	}{
		"nothing":             {nil, "[10.42.1.0/24] [] 1450"},
		"pool":                {map[string]string{wish.Pool: "blue"}, "[10.43.1.0/24] [] 1450"},
		"own block":           {map[string]string{wish.IPv4: "10.42.1.7"}, "[10.42.1.0/24] [10.42.1.7] 1450"},
		"reserved":            {map[string]string{wish.IPv4: "10.42.250.7"}, "[10.42.250.7/32] [10.42.250.7] 1450"},
		"smaller MTU":         {map[string]string{wish.MTU: "1400"}, "[10.42.1.0/24] [] 1400"},
		"larger MTU":          {map[string]string{wish.MTU: "9000"}, "1450 at most"},
		"another node's":      {map[string]string{wish.IPv4: "10.42.2.7"}, "node2"},
		"no such pool":        {map[string]string{wish.Pool: "green"}, "no IPPool green"},
		"misspelt annotation": {map[string]string{"weft.dev/ip4": "10.42.1.7"}, "weft.dev/ip4"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := pods(t)
			w.pod("web-0", c.annotations)
			_, cfg, n, cerr := w.ask("web-0")
			got := fmt.Sprint(n.Pool.Subnets(), cfg.Want, n.MTU)
			if cerr != nil {
				got = cerr.Error()
				if cerr.Code != cni.CodeRefused || !strings.Contains(got, "pod shop/web-0") {
					t.Errorf("refusal with code %d does not name the pod: %s", cerr.Code, got)
				}
			}
			if got != c.want && (cerr == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A pool of one family gives an address and routes of that family, and STATUS
// does not depend on what is left: a full node is not broken.
func TestFamiliesAndFullNodes(t *testing.T) {
	w := pods(t)
	w.inputs.pools = append(w.inputs.pools, cluster.Pool{Name: "six", OnRequest: true})
	w.inputs.served = append(w.inputs.served, leaseOf("fd00:42:0:1::/64", "default"), leaseOf("fd00:66::/64", "six"))
	n, err := w.inputs.network()
	if err != nil {
		t.Fatal(err)
	}
	w.network.Store(&network{Network: n})
	seen := w.inputs
	w.seen.Store(&seen)
	for annotation, want := range map[string]string{"": "[0.0.0.0/0 ::/0]", "blue": "[0.0.0.0/0]", "six": "[::/0]"} {
		w.objects.Remove(registry.Key{Kind: registry.Pod, Name: "shop/web-0"})
		annotations := map[string]string{}
		if annotation != "" {
			annotations[wish.Pool] = annotation
		}
		w.feed.Deliver(w.feed.Pending())
		w.cluster.objects.Apply(registry.Change{Key: registry.Key{Kind: registry.Pod, Name: "shop/web-0"},
			Object: cluster.Pod{Namespace: "shop", Name: "web-0", UID: "uid-web-0", Annotations: annotations}})
		_, _, n, cerr := w.ask("web-0")
		var routes []netip.Prefix
		for _, r := range n.Routes {
			routes = append(routes, r.Dst)
		}
		if cerr != nil || fmt.Sprint(routes) != want {
			t.Errorf("pool %q: routes %v, %v, want %s", annotation, routes, cerr, want)
		}
	}
	e := &errand{Agent: w.Agent, ctx: context.Background(), verb: cni.Status}
	if n, cerr := e.network(&cni.Config{Name: "weft"}); cerr != nil || len(n.Pool.Sets) != 0 {
		t.Errorf("STATUS asks for addresses of %v, %v", n.Pool, cerr)
	}
}

// What a pod got from its node's block before it was reserved is not leased to
// another one.
func TestReservedAddressThatAPodHas(t *testing.T) {
	w := pods(t)
	w.pod("web-0", map[string]string{wish.IPv4: "10.42.250.7"})
	e, _, _, cerr := w.ask("web-0")
	if cerr != nil {
		t.Fatal(cerr)
	}
	for holder, want := range map[string]bool{"shop/db-0": false, "shop/web-0": true} {
		w.cluster.pods = having{holder}
		err := e.lease(t.Context())
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), holder) {
			t.Errorf("with %s having it: %v", holder, err)
		}
	}
}

type having struct{ holder string }

func (having) Pod(context.Context, string, string) (cluster.Pod, error) {
	return cluster.Pod{}, registry.ErrGone
}
func (h having) PodWith(context.Context, netip.Addr) (string, error) { return h.holder, nil }
func (having) KeepAddresses(context.Context, cluster.Claim) error    { return nil }
func (having) MarkReady(context.Context) error                       { return nil }
func (having) Report(registry.Event)                                 {}

// A pod that nobody knows asks for nothing: static pods start before the API
// server has them.
func TestUnknownPod(t *testing.T) {
	w := pods(t)
	if _, _, n, cerr := w.ask("static-0"); cerr != nil || fmt.Sprint(n.Pool.Subnets()) != "[10.42.1.0/24]" {
		t.Errorf("%v, %v", n.Pool.Subnets(), cerr)
	}
}

// An agent that has started again knows nothing of what pods elsewhere keep out
// of its blocks, nor whose the blocks are: where there are pods, nobody is served
// until it does.
func TestNobodyIsServedBeforeTheFirstDecision(t *testing.T) {
	w := pods(t)
	if why := w.whyNot(); why != "" {
		t.Fatalf("with everything known: %s", why)
	}
	w.inputs.decided = false
	if why := w.whyNot(); why != "" {
		t.Errorf("without pods in the registry: %s", why)
	}
	w.cluster.pods = nobody{}
	if why := w.whyNot(); !strings.Contains(why, "does not know yet") {
		t.Errorf("with pods in the registry: %q", why)
	}
}

// A pool reserves addresses in a PodCIDR as well: what is reserved is leased to
// whoever asks for it, on any node.
func TestReservedInPodCIDR(t *testing.T) {
	w := pods(t)
	r, err := w.inputs.rangeOf(leaseOf("10.42.250.0/25", ""))
	if err != nil || r.Contains(netip.MustParseAddr("10.42.250.7")) {
		t.Errorf("%v, %v: gives away what is reserved", r, err)
	}
}

// Where all pools are for those who ask, the node is ready, or nobody would ever
// ask; who asks for nothing waits.
func TestOnlyPoolsOnRequest(t *testing.T) {
	w := pods(t)
	w.inputs.served = nil
	w.see()
	if _, _, n, cerr := w.ask("web-0"); cerr == nil || cerr.Code != cni.CodeTryAgain {
		t.Errorf("ADD: %v, %v", n.Pool, cerr)
	}
	e := &errand{Agent: w.Agent, ctx: context.Background(), verb: cni.Status}
	if n, cerr := e.network(&cni.Config{Name: "weft"}); cerr != nil || len(n.Pool.Sets) != 0 {
		t.Errorf("STATUS: %v, %v", n.Pool, cerr)
	}
}

// The registry that is out of reach is no defect of anybody.
func TestObstaclesAreTriedAgain(t *testing.T) {
	w := pods(t)
	w.pod("web-0", map[string]string{wish.IPv4: "10.42.250.7"})
	w.cluster.registry = writes{nil, w.objects.Client(func(registrytest.Call) registrytest.Fault { return registrytest.Lost })}
	e, _, _, cerr := w.ask("web-0")
	if cerr != nil {
		t.Fatal(cerr)
	}
	err := e.announce(t.Context(), engine.Attachment{})
	var again *cni.Error
	if !errors.As(err, &again) || again.Code != cni.CodeTryAgain {
		t.Errorf("%v, want code %d", err, cni.CodeTryAgain)
	}
}

// A pod that has been replaced by its namesake gets nothing of what that asks
// for.
func TestNamesake(t *testing.T) {
	w := pods(t)
	w.cluster.pods = namesake{}
	e := &errand{Agent: w.Agent, ctx: context.Background(), verb: cni.Add}
	for uid, want := range map[string]bool{"live": true, "hash": true, "": true, "former": false} {
		_, cerr := e.find(attach.Pod{Namespace: "shop", Name: "web-0", UID: uid})
		if (cerr == nil) != want {
			t.Errorf("sandbox of UID %q: %v", uid, cerr)
		}
	}
}

type namesake struct{ registry.Pods }

func (namesake) Pod(context.Context, string, string) (cluster.Pod, error) {
	return cluster.Pod{Namespace: "shop", Name: "web-0", UID: "live", Mirror: "hash"}, nil
}

// What the registry refuses is not asked of it fifty times a second.
func TestAttempts(t *testing.T) {
	var a attempts
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		a.done(now, errors.New("refused"))
		if a.due(now.Add(want*time.Second-1)) || !a.due(now.Add(want*time.Second)) {
			t.Errorf("due at %v, want after %v s", a.next.Sub(now), want)
		}
	}
	if a.done(now, nil); !a.due(now) {
		t.Error("not due after success")
	}
}

// Until the keeper has decided, what the journal had serves those who ask for
// nothing, without the blocks that are for others, where the registry has no
// pods.
func TestNetworkBeforeTheFirstDecision(t *testing.T) {
	w := pods(t)
	w.inputs.decided, w.inputs.served = false, nil
	w.pod("web-0", nil)
	if _, _, n, cerr := w.ask("web-0"); cerr != nil || fmt.Sprint(n.Pool.Subnets()) != "[10.42.1.0/24]" {
		t.Errorf("%v, %v", n.Pool.Subnets(), cerr)
	}
}

// What a pod keeps, or has to itself, is avoided for others.
func TestKeptAddressesAreAvoided(t *testing.T) {
	w := pods(t)
	w.objects.Put(registry.Key{Kind: registry.AddressClaim, Name: "shop/db-0"},
		cluster.Claim{Namespace: "shop", Name: "db-0", Addresses: []netip.Addr{netip.MustParseAddr("10.42.1.2")}})
	w.pod("web-0", nil)
	_, _, n, cerr := w.ask("web-0")
	if cerr != nil {
		t.Fatal(cerr)
	}
	grant, err := new(ipam.Usage).Allocate(n.Pool, ipam.Request{Owner: "o", Avoid: n.Avoid})
	if err != nil || grant[0].Addr != netip.MustParseAddr("10.42.1.3") {
		t.Errorf("granted %v, %v; want 10.42.1.3, because db-0 keeps 10.42.1.2", grant, err)
	}
}

// leasing has the leases made that the pod needs, and returns those of single
// addresses.
func (w *world) leasing(t *testing.T, name string) ([]string, error) {
	t.Helper()
	e, _, _, cerr := w.ask(name)
	if cerr != nil {
		t.Fatal(cerr)
	}
	err := e.lease(context.Background())
	w.see()
	var list []string
	for _, l := range w.objects.Leases() {
		if l.Pod != "" {
			list = append(list, fmt.Sprintf("%s %s %s %v", l.Name(), l.Node, l.Pod, l.Addresses))
		}
	}
	return list, err
}

func TestLeaseOfOneAddress(t *testing.T) {
	w := pods(t)
	w.pod("web-0", map[string]string{wish.IPv4: "10.42.250.7"})
	want := []string{"10-42-250-7-32 node1 shop/web-0 [198.18.1.11]"}
	for range 2 { // a repeated ADD
		if got, err := w.leasing(t, "web-0"); err != nil || !slices.Equal(got, want) {
			t.Fatalf("leases %v, %v, want %v", got, err, want)
		}
	}
	// Its record is gone, and with it the lease.
	if err := w.giveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.objects.Leases(); slices.ContainsFunc(got, func(l cluster.Lease) bool { return l.Pod != "" }) {
		t.Errorf("%v is still there", got)
	}
}

// Of two nodes that see nothing of each other, the one whose lease is created
// first has the address.
func TestLeaseThatTheViewDoesNotShow(t *testing.T) {
	w := pods(t)
	w.pod("web-0", map[string]string{wish.IPv4: "10.42.250.7"})
	e, _, _, cerr := w.ask("web-0")
	if cerr != nil {
		t.Fatal(cerr)
	}
	other := cluster.Lease{Subnet: netip.MustParsePrefix("10.42.250.7/32"), Node: "node2", Pod: "shop/db-0"}
	w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: other.Name()}, other)
	err := e.lease(t.Context())
	var again *cni.Error
	if !errors.As(err, &again) || again.Code != cni.CodeTryAgain {
		t.Fatalf("%v, want to be tried again with a better view", err)
	}
	w.see()
	if _, _, _, cerr := w.ask("web-0"); cerr == nil || !strings.Contains(cerr.Error(), "shop/db-0") || !strings.Contains(cerr.Error(), "node2") {
		t.Errorf("%v, want the pod and the node that have it", cerr)
	}
}

// A pod that keeps its address comes to this node while its lease still names
// the former one.
func TestLeaseIsTakenOver(t *testing.T) {
	w := pods(t)
	w.objects.Put(registry.Key{Kind: registry.AddressClaim, Name: "shop/web-0"},
		cluster.Claim{Namespace: "shop", Name: "web-0", Addresses: []netip.Addr{netip.MustParseAddr("10.42.2.9")}})
	former := cluster.Lease{Subnet: netip.MustParsePrefix("10.42.2.9/32"), Pool: "default", Node: "node3", Pod: "shop/web-0"}
	w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: former.Name()}, former)
	w.pod("web-0", map[string]string{wish.Sticky: "true"})
	want := []string{"10-42-2-9-32 node1 shop/web-0 [198.18.1.11]"}
	if got, err := w.leasing(t, "web-0"); err != nil || !slices.Equal(got, want) {
		t.Errorf("leases %v, %v, want %v", got, err, want)
	}
}

// The pod's lease is given back between the answer and the ADD: a new one says as
// much as the former.
func TestLeaseThatIsGivenBackMeanwhile(t *testing.T) {
	w := pods(t)
	w.pod("web-0", map[string]string{wish.IPv4: "10.42.250.7"})
	if _, err := w.leasing(t, "web-0"); err != nil {
		t.Fatal(err)
	}
	e, _, _, cerr := w.ask("web-0")
	if cerr != nil || len(e.answer.Lease) != 0 {
		t.Fatalf("%v, to be leased %v; want nothing, because it is", cerr, e.answer.Lease)
	}
	if err := w.giveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, there := w.objects.Lease("10-42-250-7-32")
	if !there || l.Pool != "default" || l.Node != "node1" || l.Pod != "shop/web-0" {
		t.Errorf("there is %+v (%v)", l, there)
	}
}

// The lease of an address that a pod here has stays, and so does another
// node's.
func TestOnlyUnusedLeasesAreGivenBack(t *testing.T) {
	w := pods(t)
	for subnet, node := range map[string]string{"10.42.250.1/32": "node1", "10.42.250.2/32": "node1", "10.42.250.3/32": "node2"} {
		l := cluster.Lease{Subnet: netip.MustParsePrefix(subnet), Node: node, Pod: "shop/a"}
		w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, l)
	}
	w.attached(t, "c1", "10.42.250.1", "10.42.250.1/32")
	w.see()
	if err := w.giveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"10-42-250-1-32": true, "10-42-250-2-32": false, "10-42-250-3-32": true} {
		if _, there := w.objects.Lease(name); there != want {
			t.Errorf("lease %s is there: %v, want %v", name, there, want)
		}
	}
}

// A pool that is there and refused is not said to be missing.
func TestRefusedPool(t *testing.T) {
	w := pods(t)
	w.objects.Put(registry.Key{Kind: registry.IPPool, Name: "late"}, cluster.Pool{
		Name: "late", Created: 9, Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.43.0.0/20"), BlockBits: 24}},
	})
	w.see()
	w.cluster.objects.Reject("IPPool wrong", "nodeSelector: no operator Near")
	for pool, want := range map[string]string{
		"late":  "weft.dev/pool: IPPool late is not in use until it is mended: 10.43.0.0/20 overlaps 10.43.0.0/16 of IPPool blue, which is in use; give it another range",
		"wrong": "weft.dev/pool: IPPool wrong is not in use until it is mended: nodeSelector: no operator Near",
		"wron":  "weft.dev/pool: there is no IPPool wron in use; create it, or ask for another",
	} {
		w.pod("web-0", map[string]string{wish.Pool: pool})
		_, _, _, cerr := w.ask("web-0")
		var refused *wish.RefusedError
		if !errors.As(cerr, &refused) || refused.Reason != wish.UnknownPool || refused.Msg != want {
			t.Errorf("%s: %v\nwant %s", pool, cerr, want)
		}
	}
}
