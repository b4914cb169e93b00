// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
)

// small returns the agent of node1, whose pool default has one block of five
// addresses.
func small(t *testing.T) *world {
	t.Helper()
	w := pods(t)
	w.fabric = fabric.New(nil, fabric.Drivers{})
	for _, l := range w.objects.Leases() {
		w.objects.Remove(registry.Key{Kind: registry.SubnetLease, Name: l.Name()})
	}
	w.objects.Put(registry.Key{Kind: registry.IPPool, Name: "default"},
		cluster.Pool{Name: "default", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.42.1.0/29"), BlockBits: 29}}})
	l := leaseOf("10.42.1.0/29", "default")
	w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, l)
	w.see()
	w.cluster.keeper.Step(t.Context(), time.Unix(2000, 0))
	w.see()
	return w
}

func (w *world) holds(t *testing.T, addr, namespace, name string) attach.Key {
	t.Helper()
	return w.recorded(t, "of-"+addr, attach.Spec{
		Pod:       attach.Pod{Namespace: namespace, Name: name},
		Addresses: []attach.Address{{Addr: netip.MustParseAddr(addr), Subnet: netip.MustParsePrefix("10.42.1.0/29")}},
	})
}

// Whoever reads why a pod has no address knows namespaces, pods and IPPools.
func TestExhaustedInTheWordsOfKubernetes(t *testing.T) {
	w := small(t)
	w.holds(t, "10.42.1.2", "shop", "web-0")
	w.holds(t, "10.42.1.3", "shop", "web-1")
	w.holds(t, "10.42.1.4", "kube-system", "dns")
	w.keeps("shop/db-0", "10.42.1.5")
	w.keeps("shop/db-1", "10.42.1.6")
	w.cluster.keeper.Step(t.Context(), time.Unix(2001, 0))
	w.pod("api-0", nil)
	e, _, n, cerr := w.ask("api-0")
	if cerr != nil {
		t.Fatal(cerr)
	}
	var cause *ipam.ExhaustedError
	err := w.engine.Ready(t.Context(), facts.Veth, n)
	if !errors.As(err, &cause) {
		t.Fatalf("IPAM says %v", err)
	}
	got := e.explainExhausted(&cni.Error{Code: cni.CodeTryAgain, Msg: err.Error(), Err: err})
	want := "node node1 has no free address for pod shop/api-0: block 10.42.1.0/29 of IPPool default: 5 addresses, 3 in use " +
		"(namespace shop 2, e.g. pod shop/web-0; namespace kube-system 1, e.g. pod kube-system/dns), 2 kept by AddressClaims (e.g. for pod shop/db-0); " +
		"no other block: Node node1 has 0 free IPv4 addresses left, and none is free: IPPool default: of 1 blocks /29 in 10.42.1.0/29, 1 are leased and 0 reserved; " +
		"delete pods, or add an IPPool; AddressClaims that are not needed can be deleted"
	if got.Code != cni.CodeTryAgain || got.Error() != want || !errors.As(got, &cause) {
		t.Errorf("code %d\n got %s\nwant %s", got.Code, got, want)
	}
	told := &telling{}
	w.cluster.pods = told
	e.lament(got)
	if len(told.events) != 1 || told.events[0].Reason != "AddressesExhausted" || told.events[0].Message != want {
		t.Errorf("told %+v", told.events)
	}
	w.cluster.pods = nil
	if again := e.explainExhausted(cni.AsError(err)); again.Error() != err.Error() {
		t.Errorf("without pods in the registry: %v", again)
	}
}

// The message fits into an Event, however many blocks and namespaces there are.
func TestExhaustedNamesAFew(t *testing.T) {
	use := poolUse{pool: "default", kept: 0}
	for i := range 10 {
		r, err := ipam.NewRange(ipam.Range{Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), 0}), 29)})
		if err != nil {
			t.Fatal(err)
		}
		use.blocks = append(use.blocks, r)
		for j := range 5 {
			use.take(attach.Pod{Namespace: fmt.Sprint("n", i), Name: fmt.Sprint("p", j)}, attach.Key{})
		}
	}
	err := &exhaustedError{node: "node1", pod: "shop/web-0", pools: []poolUse{use}}
	want := "node node1 has no free address for pod shop/web-0: blocks 10.42.0.0/29, 10.42.1.0/29, 10.42.2.0/29, 10.42.3.0/29 and 6 more of IPPool default: " +
		"50 addresses, 50 in use (namespace n0 5, e.g. pod n0/p0; namespace n1 5, e.g. pod n1/p0; namespace n2 5, e.g. pod n2/p0; and 7 more namespaces); " +
		"another block is asked for, the next attempt may find it"
	if err.Error() != want {
		t.Errorf(" got %s\nwant %s", err, want)
	}
	err.assigned = true
	if got := err.Error(); !strings.Contains(got, "the cluster assigns the blocks of this node") {
		t.Errorf("with podCIDRs: %s", got)
	}
}

// tiny has node1 serve one block of five addresses of a pool on request, and
// nothing else is left of the pool.
func tiny(t *testing.T) *world {
	t.Helper()
	w := pods(t)
	w.fabric = fabric.New(nil, fabric.Drivers{})
	for _, name := range []string{"tiny", "tiny2"} {
		cidr := map[string]string{"tiny": "10.71.0.0/29", "tiny2": "10.72.0.0/29"}[name]
		w.objects.Put(registry.Key{Kind: registry.IPPool, Name: name},
			cluster.Pool{Name: name, Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix(cidr), BlockBits: 29}}, OnRequest: true})
		l := leaseOf(cidr, name)
		w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, l)
	}
	// An idle block is not given back.
	w.cluster.keeper = leasing.New(leasing.Config{Node: "node1", IdleAfter: time.Hour}, w.cluster.objects, w.cluster.registry,
		(*addresses)(w.Agent), w.inputs.identity, func() map[string]string { return nil })
	w.see()
	w.cluster.keeper.Step(t.Context(), time.Unix(2000, 0))
	w.see()
	return w
}

// exhausts asks for the pool until the ADD gives up.
func (w *world) exhausts(t *testing.T) string {
	t.Helper()
	w.pod("api-0", map[string]string{wish.Pool: "tiny"})
	w.cluster.keeper.Demand("tiny")
	w.cluster.keeper.Demand("tiny2") // whose lack is none of this pod's
	w.cluster.keeper.Step(t.Context(), time.Unix(2001, 0))
	e, _, _, cerr := w.ask("api-0")
	var exhausted *exhaustedPoolError
	if !errors.As(cerr, &exhausted) || cerr.Code != cni.CodeTryAgain {
		t.Fatalf("%v", cerr)
	}
	told := &telling{}
	w.cluster.pods = told
	e.lament(cerr)
	if len(told.events) != 1 || told.events[0].Reason != "AddressesExhausted" || told.events[0].Message != cerr.Error() {
		t.Errorf("told %+v", told.events)
	}
	return cerr.Error()
}

// Of a pool that is used up the message says by whom, and what can be given up.
func TestExhaustedPool(t *testing.T) { synctest.Test(t, testExhaustedPool) }

func testExhaustedPool(t *testing.T) {
	kept, used := tiny(t), tiny(t)
	for i := range 5 {
		kept.keeps(fmt.Sprintf("shop/db-%d", i), fmt.Sprintf("10.71.0.%d", i+2))
		used.holds(t, fmt.Sprintf("10.71.0.%d", i+2), "shop", fmt.Sprintf("web-%d", i))
	}
	const lack = "Node node1 has 0 free IPv4 addresses left of IPPool tiny, which a pod asks for, and none is free: " +
		"IPPool tiny: of 1 blocks /29 in 10.71.0.0/29, 1 are leased and 0 reserved"
	for want, w := range map[string]*world{
		"pod shop/api-0: node node1 has no free address of IPPool tiny: block 10.71.0.0/29 of IPPool tiny: 5 addresses, 0 in use, 5 kept by AddressClaims (e.g. for pod shop/db-0); " +
			"no other block: " + lack + "; delete AddressClaims that are not needed (5 have addresses of the pool), or pods that use it, or let the pod ask for another IPPool": kept,
		"pod shop/api-0: node node1 has no free address of IPPool tiny: block 10.71.0.0/29 of IPPool tiny: 5 addresses, 5 in use (namespace shop 5, e.g. pod shop/web-0); " +
			"no other block: " + lack + "; delete pods that use the pool, or let the pod ask for another IPPool": used,
	} {
		if got := w.exhausts(t); got != want {
			t.Errorf(" got %s\nwant %s", got, want)
		}
	}
}

// A node without a block of the pool says so; the claims may be on other nodes.
func TestExhaustedPoolElsewhere(t *testing.T) {
	err := &exhaustedPoolError{node: "node1", pool: "web", claims: 2, waiting: []string{"no block of IPPool web2", "x IPPool web: 1 leased"}}
	want := "node node1 has no free address of IPPool web: it has no block of it; no other block: x IPPool web: 1 leased; " +
		"delete AddressClaims that are not needed (2 have addresses of the pool), or pods that use it, or let the pod ask for another IPPool"
	if err.Error() != want {
		t.Errorf(" got %s\nwant %s", err, want)
	}
	err.waiting = err.waiting[:1]
	if got := err.Error(); !strings.Contains(got, "another one is asked for, the next attempt may find it") {
		t.Errorf("got %s", got)
	}
}

func TestAboutPool(t *testing.T) {
	for text, want := range map[string]bool{
		"IPPool web": true, "of IPPool web, which": true, "IPPool web: of 1": true, "IPPool web2": false, "IPPool web-a, of IPPool web; x": true,
		"IPPool web.b": false, "web": false, "": false,
	} {
		if got := len(aboutPool([]string{text}, "web")) == 1; got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A block whose free addresses are all kept for pods elsewhere has none: the
// node needs another one, and for a pod that asks for the pool too.
func TestKeptAddressesAreNotFree(t *testing.T) {
	w := pods(t)
	free := func() (uint64, uint64) {
		blocks, err := (*addresses)(w.Agent).Blocks(time.Unix(2000, 0))
		if err != nil {
			t.Fatal(err)
		}
		e := &errand{Agent: w.Agent, ctx: t.Context()}
		of, err := e.free(wish.Wish{Pool: "blue"}, w.seen.Load())
		if err != nil {
			t.Fatal(err)
		}
		return blocks[0].Free, of[netip.MustParsePrefix("10.43.1.0/24")]
	}
	if block, pool := free(); block != 253 || pool != 253 {
		t.Fatalf("free %d, %d", block, pool)
	}
	w.keeps("shop/db-0", "10.42.1.7")
	w.keeps("shop/db-1", "10.43.1.7")
	w.keeps("shop/db-2", "10.43.1.8")
	w.holds(t, "10.43.1.8", "shop", "db-2")
	if block, pool := free(); block != 252 || pool != 251 {
		t.Errorf("free %d, %d; want 252, 251", block, pool)
	}
}

// What a node has learnt of claims when it leased a block counts before the
// first address of the block is granted, and not one pass later.
func TestClaimsCountBeforeTheirBlockIsServed(t *testing.T) {
	w := small(t)
	w.cluster.objects.Apply(registry.Change{Key: registry.Key{Kind: registry.AddressClaim, Name: "shop/db-0"},
		Object: cluster.Claim{Namespace: "shop", Name: "db-0", Addresses: []netip.Addr{netip.MustParseAddr("10.42.1.2")}}})
	if err := (*addresses)(w.Agent).Serve(t.Context(), []cluster.Lease{leaseOf("10.42.1.0/29", "default")}); err != nil {
		t.Fatal(err)
	}
	if holder := (*w.kept.Load())[netip.MustParseAddr("10.42.1.2")]; holder != "shop/db-0" {
		t.Errorf("10.42.1.2 is kept for %q", holder)
	}
}
