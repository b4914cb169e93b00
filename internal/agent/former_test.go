// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/registry"
)

// released ends an attachment, as its DEL does.
func (a *Agent) released(t *testing.T, k attach.Key) {
	t.Helper()
	err := a.store.Update(context.Background(), func(*facts.Facts) ([]string, error) {
		releasing, err := facts.EncodeReleasing(3, k)
		if err != nil {
			return nil, err
		}
		released, err := facts.EncodeReleased(4, k)
		return []string{releasing, released}, err
	})
	if err != nil {
		t.Error(err)
	}
}

var web0 = attach.Pod{Namespace: "shop", Name: "web-0", UID: "uid-before"}

// The address of a pod that is made anew at once is its former sandbox's until
// the DEL of that, which ADD waits for: as long as it must, and no longer.
func TestFormerSandboxOfThePodIsWaitedFor(t *testing.T) {
	const never = time.Hour
	port := attach.Port{Protocol: attach.UDP, HostPort: 53, ContainerPort: 53}
	cases := map[string]struct {
		pod       attach.Pod // of the sandbox that has what is asked for
		container string
		wishes    map[string]string
		ports     []attach.Port
		release   time.Duration // when its DEL comes
		timeout   time.Duration // of the call
		want      time.Duration // that ADD waits at least, and hardly longer
	}{
		"address, DEL comes":     {web0, "old", map[string]string{wish.IPv4: "10.42.1.7"}, nil, 2 * time.Second, never, 2 * time.Second},
		"kept, DEL comes":        {web0, "old", map[string]string{wish.Sticky: "true"}, nil, 2 * time.Second, never, 2 * time.Second},
		"port, DEL comes":        {web0, "old", nil, []attach.Port{port}, 2 * time.Second, never, 2 * time.Second},
		"no DEL":                 {web0, "old", map[string]string{wish.Sticky: "true"}, nil, never, never, releasePatience},
		"no DEL, hasty runtime":  {web0, "old", map[string]string{wish.Sticky: "true"}, nil, never, 3 * time.Second, 1500 * time.Millisecond},
		"another pod":            {attach.Pod{Namespace: "shop", Name: "web-1"}, "old", map[string]string{wish.IPv4: "10.42.1.7"}, nil, never, never, 0},
		"another namespace":      {attach.Pod{Namespace: "test", Name: "web-0"}, "old", nil, []attach.Port{port}, never, never, 0},
		"another of its ifnames": {web0, "new", map[string]string{wish.IPv4: "10.42.1.7"}, nil, never, never, 0},
		"nothing is asked for":   {web0, "old", nil, nil, never, never, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pods(t)
				w.keeps("shop/web-0", "10.42.1.7")
				w.pod("web-0", c.wishes)
				k := w.recorded(t, c.container, attach.Spec{Pod: c.pod, Ports: []attach.Port{port}, Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.42.1.7")}}})
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				del := time.AfterFunc(c.release, func() { w.released(t, k) })
				defer del.Stop()
				start := time.Now()
				_, _, _, cerr := w.askWith(ctx, "web-0", c.ports)
				if took := time.Since(start); cerr != nil || took < c.want || took > c.want+2*breath {
					t.Errorf("%v after %v, want %v", cerr, took, c.want)
				}
			})
		})
	}
}

// keeps puts a claim into the registry.
func (w *world) keeps(pod, addr string) {
	namespace, name, _ := strings.Cut(pod, "/")
	w.objects.Put(registry.Key{Kind: registry.AddressClaim, Name: pod},
		cluster.Claim{Namespace: namespace, Name: name, Addresses: []netip.Addr{netip.MustParseAddr(addr)}})
	w.see()
}

// While ADD waits for the former sandbox, the lease of its address is given
// back; what counts is what there is when it goes on.
func TestFormerSandboxTakesItsLeaseAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pods(t)
		w.keeps("shop/web-0", "10.42.2.9") // in node2's block
		w.pod("web-0", map[string]string{wish.Sticky: "true"})
		former := cluster.Lease{Subnet: netip.MustParsePrefix("10.42.2.9/32"), Pool: "default", Node: "node1", Pod: "shop/web-0"}
		w.objects.Put(registry.Key{Kind: registry.SubnetLease, Name: former.Name()}, former)
		w.see()
		k := w.recorded(t, "old", attach.Spec{Pod: web0, Addresses: []attach.Address{{Addr: former.Subnet.Addr(), Subnet: former.Subnet}}})
		time.AfterFunc(time.Second, func() {
			w.objects.Remove(registry.Key{Kind: registry.SubnetLease, Name: former.Name()})
			w.see()
			w.released(t, k)
		})
		e, _, _, cerr := w.ask("web-0")
		if cerr != nil || len(e.answer.Lease) != 1 || e.answer.Lease[0].Pool != "default" || len(e.single) != 1 {
			t.Errorf("%v: leases to create %v, of %v; want that of the address", cerr, e.answer.Lease, e.single)
		}
	})
}

// While ADD waits, the node's network changes: the pod gets the one that is there
// when it goes on.
func TestNetworkAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pods(t)
		w.keeps("shop/web-0", "10.42.1.7")
		w.pod("web-0", map[string]string{wish.Sticky: "true"})
		k := w.recorded(t, "old", attach.Spec{Pod: web0, Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.42.1.7")}}})
		before := w.network.Load()
		after := *before
		after.MTU = before.MTU - 150
		time.AfterFunc(time.Second, func() {
			w.network.Store(&after)
			w.released(t, k)
		})
		if _, _, n, cerr := w.ask("web-0"); cerr != nil || n.MTU != after.MTU {
			t.Errorf("%v: MTU %d, want %d", cerr, n.MTU, after.MTU)
		}
	})
}

// Nobody is told of what the pod's own former sandbox holds.
func TestFormerSandboxIsNoEvent(t *testing.T) {
	for pod, want := range map[attach.Pod]int{web0: 0, {Namespace: "shop", Name: "web-1"}: 1, {}: 1} {
		w := pods(t)
		told := &telling{}
		e := &errand{Agent: w.Agent, ctx: t.Context(), verb: cni.Add, pod: cluster.Pod{Namespace: "shop", Name: "web-0", UID: "u"}}
		e.key = attach.Key{Network: "weft", ContainerID: "new", Ifname: "eth0"}
		w.cluster.pods = told
		w.recorded(t, "old", attach.Spec{Pod: pod, Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.42.1.7")}}})
		e.lament(&cni.Error{Err: w.engine.Contended(t.Context(), e.key, []netip.Addr{netip.MustParseAddr("10.42.1.7")}, nil)})
		if len(told.events) != want {
			t.Errorf("held by %q: told %v, want %d", pod, told.events, want)
		}
	}
}

// telling takes note of Events.
type telling struct {
	registry.Pods
	events []registry.Event
}

func (p *telling) Report(e registry.Event) { p.events = append(p.events, e) }
