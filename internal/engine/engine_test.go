// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/kernel"
)

var ctx = context.Background()

func TestAddThenDelLeavesNothing(t *testing.T) {
	b := newBench(t)
	a, err := b.Add(ctx, b.request("c1", "10.0.0.0/24", "fd00::/64"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.used()); got != "[10.0.0.2 fd00::2]" {
		t.Errorf("used addresses %s", got)
	}
	if _, found := b.kernel.links[a.Plan.HostIfname]; !found || b.kernel.node == nil {
		t.Error("the kernel lacks the interface or the node's objects")
	}
	if rec, found := b.record("c1"); !found || rec.Phase != facts.Complete {
		t.Errorf("record %+v", rec)
	}
	for range 3 {
		if err := b.Del(ctx, key("c1"), nil); err != nil {
			t.Fatal(err)
		}
	}
	b.clean()
}

func TestRepeatedAddIsRefusedAndChangesNothing(t *testing.T) {
	b := newBench(t)
	first, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	b.kernel.calls = nil
	_, err = b.Add(ctx, b.request("c1"))
	var attached *AttachedError
	if !errors.As(err, &attached) {
		t.Fatalf("want AttachedError, got %v", err)
	}
	d, err := attached.Record.Detail()
	if err != nil || !reflect.DeepEqual(d.Spec(first.Spec.Key, b.Instance), first.Spec) || string(d.Answer) != `{"said":1}` {
		t.Errorf("the refusal carries %+v, %v, want %+v", d, err, first.Spec)
	}
	if len(b.used()) != 1 || strings.Contains(fmt.Sprint(b.kernel.calls), "tach") {
		t.Errorf("used %v, kernel calls %v", b.used(), b.kernel.calls)
	}
}

// A complete record whose interface has gone is not alive: the pod that asks
// again gets a new interface and the same address.
func TestAddReplacesWhatLostItsInterface(t *testing.T) {
	b := newBench(t)
	first, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	delete(b.kernel.links, first.Plan.HostIfname)
	again, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Spec.Addresses[0] != first.Spec.Addresses[0] || len(b.used()) != 1 {
		t.Errorf("first %v, again %v, used %v", first.Spec.Addresses, again.Spec.Addresses, b.used())
	}
}

// Every operation of ADD fails in turn, without effect and after its effect:
// ADD must report it, and nothing may be left.
func TestAddUndoesEveryFailure(t *testing.T) {
	for _, mode := range []failure{failBefore, failAfter} {
		for n := 0; ; n++ {
			b := newBench(t)
			failed := ""
			count := 0
			b.kernel.fail = func(op string) failure {
				count++
				if count == n+1 {
					failed = op
					return mode
				}
				return succeed
			}
			_, err := b.Add(ctx, b.request("c1"))
			if failed == "" {
				if err != nil {
					t.Fatalf("nothing was made to fail, but: %v", err)
				}
				break
			}
			t.Run(fmt.Sprintf("%d/%s", mode, failed), func(t *testing.T) {
				if !errors.Is(err, errInjected) {
					t.Errorf("ADD answered %v", err)
				}
				b.kernel.fail = func(string) failure { return succeed }
				b.t = t
				b.clean()
				if _, found := b.record("c1"); found {
					t.Error("a record is left")
				}
				if _, err := b.Add(ctx, b.request("c1")); err != nil {
					t.Errorf("ADD after the failure: %v", err)
				}
			})
		}
	}
}

// If undoing fails as well, the record stays, and DEL finishes.
func TestAddThatCannotBeUndoneIsFinishedByDel(t *testing.T) {
	b := newBench(t)
	b.kernel.fail = func(op string) failure {
		switch op {
		case "attach":
			return failAfter
		case "detach":
			return failBefore
		}
		return succeed
	}
	if _, err := b.Add(ctx, b.request("c1")); err == nil {
		t.Fatal("ADD succeeded")
	}
	if rec, found := b.record("c1"); !found || rec.Phase == facts.Complete {
		t.Fatalf("record %+v, found %v", rec, found)
	}
	if len(b.used()) != 1 {
		t.Fatalf("the address is free while the interface exists")
	}
	b.kernel.fail = func(string) failure { return succeed }
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

func TestDelFailsWithoutFreeingTheAddress(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.request("c1")); err != nil {
		t.Fatal(err)
	}
	b.kernel.fail = func(op string) failure {
		if op == "detach" {
			return failBefore
		}
		return succeed
	}
	if err := b.Del(ctx, key("c1"), nil); !errors.Is(err, errInjected) {
		t.Fatalf("DEL answered %v", err)
	}
	if len(b.used()) != 1 {
		t.Error("the address is free while the interface exists")
	}
	b.kernel.fail = func(string) failure { return succeed }
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

func TestDelWithoutRecordRemovesTheInterface(t *testing.T) {
	b := newBench(t)
	b.kernel.links[key("lost").HostIfname()] = attach.Plan{}
	if err := b.Del(ctx, key("lost"), nil); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// The node's objects go with the network's last attachment, not before.
func TestNodeObjectsGoWithTheLastAttachment(t *testing.T) {
	b := newBench(t)
	for _, c := range []string{"c1", "c2"} {
		if _, err := b.Add(ctx, b.request(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	if b.kernel.node == nil {
		t.Fatal("the node's objects went with the first of two attachments")
	}
	if err := b.Del(ctx, key("c2"), nil); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

func TestWantedAddressInUseIsRefused(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.request("c1")); err != nil {
		t.Fatal(err)
	}
	r := b.request("c2")
	r.Want = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	_, err := b.Add(ctx, r)
	var inUse *ipam.InUseError
	if !errors.As(err, &inUse) || inUse.Owner != "net/c1/eth0" {
		t.Fatalf("ADD answered %v", err)
	}
	if len(b.used()) != 1 || len(b.kernel.links) != 1 {
		t.Error("the refused ADD changed something")
	}
}

// A plan that cannot be made is refused before anything is recorded.
func TestImpossiblePlanChangesNothing(t *testing.T) {
	b := newBench(t)
	r := b.request("c1")
	r.Network.Routes = []attach.Route{{Dst: netip.MustParsePrefix("::/0")}}
	_, err := b.Add(ctx, r)
	var plan *PlanError
	if !errors.As(err, &plan) {
		t.Fatalf("ADD answered %v", err)
	}
	if _, found := b.record("c1"); found {
		t.Error("a record was written")
	}
	b.clean()
}

func TestDelegatedAddresses(t *testing.T) {
	grant := func(b *bench) AddRequest {
		r := b.request("c1")
		r.Delegate = &facts.Delegate{Type: "other", Config: []byte(`{}`)}
		r.Grant = func(context.Context) (Granted, error) {
			b.delegates.held[r.Key] = true
			return Granted{Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.9.0.5"), Subnet: netip.MustParsePrefix("10.9.0.0/24")}}}, nil
		}
		return r
	}
	t.Run("add and del", func(t *testing.T) {
		b := newBench(t)
		if _, err := b.Add(ctx, grant(b)); err != nil {
			t.Fatal(err)
		}
		if err := b.Del(ctx, key("c1"), nil); err != nil {
			t.Fatal(err)
		}
		b.clean()
	})
	t.Run("undone when ADD fails later", func(t *testing.T) {
		b := newBench(t)
		b.kernel.fail = func(op string) failure {
			if op == "attach" {
				return failBefore
			}
			return succeed
		}
		if _, err := b.Add(ctx, grant(b)); !errors.Is(err, errInjected) {
			t.Fatalf("ADD answered %v", err)
		}
		b.clean()
	})
	t.Run("undone when the delegate itself fails", func(t *testing.T) {
		b := newBench(t)
		r := grant(b)
		r.Grant = func(context.Context) (Granted, error) {
			b.delegates.held[r.Key] = true // half of its work
			return Granted{}, errInjected
		}
		if _, err := b.Add(ctx, r); !errors.Is(err, errInjected) {
			t.Fatalf("ADD answered %v", err)
		}
		b.clean()
	})
	t.Run("del waits for the delegate", func(t *testing.T) {
		b := newBench(t)
		if _, err := b.Add(ctx, grant(b)); err != nil {
			t.Fatal(err)
		}
		b.delegates.err = errInjected
		if err := b.Del(ctx, key("c1"), nil); !errors.Is(err, errInjected) {
			t.Fatalf("DEL answered %v", err)
		}
		if len(b.kernel.links) != 0 {
			t.Error("the interface must go although the delegate fails")
		}
		b.delegates.err = nil
		if err := b.Del(ctx, key("c1"), nil); err != nil {
			t.Fatal(err)
		}
		b.clean()
	})
	t.Run("del without record reaches the delegate", func(t *testing.T) {
		b := newBench(t)
		b.delegates.held[key("c1")] = true
		if err := b.Del(ctx, key("c1"), func(context.Context) error { delete(b.delegates.held, key("c1")); return nil }); err != nil {
			t.Fatal(err)
		}
		b.clean()
	})
}

func TestCheck(t *testing.T) {
	b := newBench(t)
	ns := sandbox(t)
	asMade := func(p attach.Plan) (attach.Plan, kernel.CompareOptions) { return p, kernel.CompareOptions{} }
	if err := b.Check(ctx, key("c1"), ns, asMade); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("CHECK of nothing answered %v", err)
	}
	a, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(ctx, key("c1"), ns, asMade); err != nil {
		t.Errorf("CHECK of a good attachment: %v", err)
	}
	delete(b.kernel.links, a.Plan.HostIfname)
	err = b.Check(ctx, key("c1"), ns, asMade)
	var drift *DriftError
	if !errors.As(err, &drift) || len(drift.Differences) != 1 {
		t.Errorf("CHECK of a lost interface answered %v", err)
	}
}

func TestReadySaysWhenNoAddressIsLeft(t *testing.T) {
	b := newBench(t)
	r := b.request("c1", "10.0.0.0/30") // .1 is the gateway, .2 the only address
	if err := b.Ready(ctx, facts.Veth, r.Network); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(ctx, r); err != nil {
		t.Fatal(err)
	}
	var exhausted *ipam.ExhaustedError
	if err := b.Ready(ctx, facts.Veth, r.Network); !errors.As(err, &exhausted) {
		t.Fatalf("Ready answered %v", err)
	}
	if _, err := b.Add(ctx, b.request("c2", "10.0.0.0/30")); !errors.As(err, &exhausted) {
		t.Fatalf("ADD answered %v", err)
	}
}

func TestReservations(t *testing.T) {
	b := newBench(t)
	req := ReserveRequest{Key: key("c1"), Network: testNetwork(t, "10.0.0.0/24"), Netns: "/n", NetnsID: kernel.NetnsID{Dev: 1, Ino: 2}}
	g, err := b.Reserve(ctx, req)
	if err != nil || g.Addresses[0].Addr != netip.MustParseAddr("10.0.0.2") {
		t.Fatalf("granted %v, %v", g, err)
	}
	var attached *AttachedError
	if _, err := b.Reserve(ctx, req); !errors.As(err, &attached) {
		t.Fatalf("a second reservation answered %v", err)
	}
	moved := req
	moved.NetnsID.Ino = 3
	again, err := b.Reserve(ctx, moved)
	if err != nil || again.Addresses[0] != g.Addresses[0] {
		t.Fatalf("the same key in another sandbox: %v, %v", again, err)
	}
	if addrs, err := b.Reserved(ctx, key("c1")); err != nil || len(addrs) != 1 {
		t.Fatalf("reserved %v, %v", addrs, err)
	}
	for range 2 {
		if err := b.Release(ctx, key("c1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Reserved(ctx, key("c1")); !errors.Is(err, ErrNotRecorded) {
		t.Fatalf("after the release: %v", err)
	}
}

// Attachments of one container are ranked in the order in which they came.
func TestRanks(t *testing.T) {
	b := newBench(t)
	rank := func(ifname string) int {
		t.Helper()
		r := b.request("c1")
		r.Key.Ifname = ifname
		a, err := b.Add(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return a.Spec.Rank
	}
	if _, err := b.Add(ctx, b.request("other")); err != nil {
		t.Fatal(err)
	}
	if eth0, net1, net2 := rank("eth0"), rank("net1"), rank("net2"); eth0 != 0 || net1 != 1 || net2 != 2 {
		t.Errorf("ranks %d, %d, %d", eth0, net1, net2)
	}
	middle := key("c1")
	middle.Ifname = "net1"
	if err := b.Del(ctx, middle, nil); err != nil {
		t.Fatal(err)
	}
	if net3 := rank("net3"); net3 != 3 {
		t.Errorf("after one of three went, the next has rank %d: it could clash with the last", net3)
	}
}

// A configuration that a delegate refuses for ever must not wedge the key: the
// corrected one releases what the first may have got.
func TestCorrectedDelegateUnwedges(t *testing.T) {
	b := newBench(t)
	b.delegates.err = errInjected // the delegate refuses the recorded configuration
	r := b.request("c1")
	r.Delegate = &facts.Delegate{Type: "other", Config: []byte(`{"wrong":1}`)}
	r.Grant = func(context.Context) (Granted, error) { return Granted{}, errInjected }
	if _, err := b.Add(ctx, r); !errors.Is(err, errInjected) {
		t.Fatalf("ADD answered %v", err)
	}
	if _, found := b.record("c1"); !found {
		t.Fatal("the record ended although the delegate was not reached")
	}
	released := false
	r.Delegate = &facts.Delegate{Type: "other", Config: []byte(`{}`)}
	r.Ungrant = func(context.Context) error { released = true; return nil }
	r.Grant = func(context.Context) (Granted, error) {
		return Granted{Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.9.0.5")}}}, nil
	}
	if _, err := b.Add(ctx, r); err != nil || !released {
		t.Errorf("ADD with the corrected configuration: %v, released %v", err, released)
	}
}

// What is direct or plain is a matter of the network, also for attachments of
// an earlier range.
func TestAgentNodeWithDirectAndPlain(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.request("c1", "10.1.0.0/24")); err != nil {
		t.Fatal(err)
	}
	n := testNetwork(t, "10.2.0.0/24")
	n.Masquerade = true
	n.Direct = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.2.0.0/24")}
	n.Plain = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	var node kernel.Node
	err := b.store.View(ctx, func(f *facts.Facts) (err error) {
		node, err = AgentNode(f, n)
		return err
	})
	got := fmt.Sprintf("%v %v", node.Sources, node.Pools)
	if err != nil || got != "[10.2.0.0/24] [10.0.0.0/8 10.1.0.0/24 10.2.0.0/24]" {
		t.Errorf("node %s, %v", got, err)
	}
}

// The agent's node serves living attachments of an earlier range too.
func TestAgentNodeKeepsTheRangesOfTheLiving(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.request("c1", "10.1.0.0/24")); err != nil {
		t.Fatal(err)
	}
	var node kernel.Node
	err := b.store.View(ctx, func(f *facts.Facts) (err error) {
		node, err = AgentNode(f, testNetwork(t, "10.2.0.0/24"))
		return err
	})
	got := fmt.Sprintf("%s %v %v %v", node.Table, node.Sources, node.Pools, node.Gateways)
	if err != nil || got != "weft [10.2.0.0/24 10.1.0.0/24] [10.1.0.0/24 10.2.0.0/24] [10.2.0.1 10.1.0.1]" {
		t.Errorf("node %s, %v", got, err)
	}
}

// Who has what an ADD asks for is known before the ADD: nothing is taken.
func TestContended(t *testing.T) {
	b := newBench(t)
	r := b.request("c1")
	r.Pod = attach.Pod{Namespace: "shop", Name: "web-0"}
	r.Ports = []attach.Port{{Protocol: attach.TCP, HostPort: 8080, ContainerPort: 80}}
	a, err := b.Add(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{a.Spec.Addresses[0].Addr}
	if err := b.Contended(ctx, key("c1"), want, r.Ports); err != nil {
		t.Errorf("for its holder: %v", err)
	}
	if err := b.Contended(ctx, key("c2"), []netip.Addr{want[0].Next()}, nil); err != nil {
		t.Errorf("another address: %v", err)
	}
	var held *HeldError
	err = b.Contended(ctx, key("c2"), want, nil)
	if !errors.As(err, &held) || held.Holder != key("c1") || held.Pod != r.Pod || !strings.Contains(err.Error(), "pod shop/web-0 (net/c1/eth0)") {
		t.Errorf("the address: %v", err)
	}
	var port *facts.PortError
	if err := b.Contended(ctx, key("c2"), nil, r.Ports); !errors.As(err, &port) || port.Owner != key("c1") {
		t.Errorf("the port: %v", err)
	}
}
