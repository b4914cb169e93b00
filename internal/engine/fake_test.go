// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// fakeKernel is a model of what package kernel keeps in the kernel, with
// failures to order.
type fakeKernel struct {
	mu    sync.Mutex
	links map[string]attach.Plan // by host interface
	node  *kernel.Node
	calls []string
	// forgotten are the ports whose flows were.
	forgotten []attach.Mapping

	// fail is asked before each operation; before: it fails without effect,
	// after: it has its effect and fails all the same.
	fail func(op string) failure
}

type failure int

const (
	succeed failure = iota
	failBefore
	failAfter
)

var errInjected = errors.New("injected failure")

func newFakeKernel() *fakeKernel {
	return &fakeKernel{links: make(map[string]attach.Plan), fail: func(string) failure { return succeed }}
}

// do runs one operation with the failure that is due.
func (k *fakeKernel) do(op string, effect func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, op)
	switch k.fail(op) {
	case failBefore:
		return errInjected
	case failAfter:
		return errors.Join(effect(), errInjected)
	default:
		return effect()
	}
}

func (k *fakeKernel) Attach(_ *kernel.Netns, p attach.Plan) error {
	return k.do("attach", func() error {
		if _, taken := k.links[p.HostIfname]; taken {
			return &kernel.HostLinkExistsError{Ifname: p.HostIfname}
		}
		for _, other := range k.links {
			for _, r := range p.HostRoutes {
				if slices.Contains(other.HostRoutes, r) {
					return fmt.Errorf("route %s exists", r)
				}
			}
		}
		k.links[p.HostIfname] = p
		return nil
	})
}

func (k *fakeKernel) Detach(name string) error {
	return k.do("detach", func() error { delete(k.links, name); return nil })
}

func (k *fakeKernel) DetachAll(names []string) error {
	return k.do("detach-all", func() error {
		for _, n := range names {
			delete(k.links, n)
		}
		return nil
	})
}

func (k *fakeKernel) Compare(_ *kernel.Netns, p attach.Plan, _ ...kernel.CompareOptions) (diff []kernel.Difference, err error) {
	err = k.do("compare", func() error {
		if have, found := k.links[p.HostIfname]; !found || have.MTU != p.MTU {
			diff = append(diff, kernel.Difference{Object: "interface " + p.HostIfname, Expected: "present", Found: "absent"})
		}
		return nil
	})
	return diff, err
}

func (k *fakeKernel) LinkExists(name string) (exists bool, err error) {
	err = k.do("link-exists", func() error { _, exists = k.links[name]; return nil })
	return exists, err
}

func (k *fakeKernel) LinkExistsIn(_ *kernel.Netns, name string) (exists bool, err error) {
	err = k.do("link-exists-in", func() error { return nil })
	return false, err
}

func (k *fakeKernel) Owned() (owned []kernel.Owned, err error) {
	err = k.do("owned", func() error {
		for name, p := range k.links {
			o := kernel.Owned{HostIfname: name, Alias: p.Alias, MTU: p.MTU, Ports: p.Ports}
			for _, r := range p.HostRoutes {
				o.Addresses = append(o.Addresses, r.Addr())
			}
			owned = append(owned, o)
		}
		return nil
	})
	return owned, err
}

func (k *fakeKernel) UplinkMTU() (int, error) {
	return 1500, k.do("uplink-mtu", func() error { return nil })
}

func (k *fakeKernel) EnsureNode(n kernel.Node) error {
	return k.do("ensure-node", func() error { k.node = &n; return nil })
}

func (k *fakeKernel) CompareNode(kernel.Node) ([]kernel.Difference, error) {
	return nil, k.do("compare-node", func() error { return nil })
}

func (k *fakeKernel) RemoveNode(kernel.Node) error {
	return k.do("remove-node", func() error { k.node = nil; return nil })
}

func (k *fakeKernel) Mend(p attach.Plan) (mended int, err error) {
	err = k.do("mend", func() error {
		have, there := k.links[p.HostIfname]
		if !there {
			return nil
		}
		mended = len(p.HostRoutes) - len(have.HostRoutes)
		k.links[p.HostIfname] = p
		return nil
	})
	return mended, err
}

func (k *fakeKernel) ForgetPorts(ports []attach.Mapping) error {
	return k.do("forget-ports", func() error { k.forgotten = append(k.forgotten, ports...); return nil })
}

func (k *fakeKernel) RemoveOrphans() ([]kernel.Orphan, error) {
	return nil, k.do("remove-orphans", func() error { return nil })
}

func (k *fakeKernel) SetPodMTU(_ *kernel.Netns, _, hostIfname string, mtu int) error {
	return k.do("set-pod-mtu", func() error {
		p := k.links[hostIfname]
		p.MTU = mtu
		k.links[hostIfname] = p
		return nil
	})
}

// fakeDelegates counts what delegates still hold.
type fakeDelegates struct {
	held map[attach.Key]bool
	err  error
}

func (d *fakeDelegates) Release(_ context.Context, k attach.Key, _ facts.Delegate) error {
	if d.err != nil {
		return d.err
	}
	delete(d.held, k)
	return nil
}

// bench is an engine on a real journal and the fake kernel, with a clock that
// only moves when told.
type bench struct {
	*Engine
	t         testing.TB
	kernel    *fakeKernel
	delegates *fakeDelegates
	store     *journal.Store[*facts.Facts]
	clock     time.Time
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	store, err := journal.Own(context.Background(), dir, facts.New)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{
		t: t, kernel: newFakeKernel(), delegates: &fakeDelegates{held: make(map[attach.Key]bool)},
		store: store, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	b.Engine = &Engine{Store: store, Kernel: b.kernel, Delegates: b.delegates, Instance: dir, Now: func() time.Time { return b.clock }}
	return b
}

func testNetwork(t testing.TB, subnets ...string) Network {
	t.Helper()
	n := Network{Name: "net", Masquerade: true, Cooldown: 30 * time.Second}
	var sets []ipam.Set
	for _, s := range subnets {
		r, err := ipam.NewRange(ipam.Range{Subnet: netip.MustParsePrefix(s)})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, ipam.Set{r})
	}
	pool, err := ipam.NewPool(sets)
	if err != nil {
		t.Fatal(err)
	}
	n.Pool = pool
	return n
}

func key(container string) attach.Key {
	return attach.Key{Network: "net", ContainerID: container, Ifname: "eth0"}
}

func sandbox(t testing.TB) *kernel.Netns {
	t.Helper()
	ns, err := kernel.OpenNetns("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func (b *bench) request(container string, subnets ...string) AddRequest {
	if len(subnets) == 0 {
		subnets = []string{"10.0.0.0/24"}
	}
	return AddRequest{
		Key: key(container), Network: testNetwork(b.t, subnets...), Netns: sandbox(b.t),
		Answer: func() (json.RawMessage, error) { return json.RawMessage(`{"said":1}`), nil },
	}
}

func (b *bench) record(container string) (facts.Record, bool) {
	b.t.Helper()
	rec, found, err := b.lookup(context.Background(), key(container))
	if err != nil {
		b.t.Fatal(err)
	}
	return rec, found
}

// used returns the addresses that are not free.
func (b *bench) used() []netip.Addr {
	b.t.Helper()
	var used []netip.Addr
	err := b.store.View(context.Background(), func(f *facts.Facts) error {
		for a := range f.Usage(facts.Veth, "net").Used {
			used = append(used, a)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return used
}

// clean fails the test unless nothing at all is left.
func (b *bench) clean() {
	b.t.Helper()
	if used := b.used(); len(used) > 0 {
		b.t.Errorf("addresses still used: %v", used)
	}
	if len(b.kernel.links) > 0 {
		b.t.Errorf("interfaces left: %v", b.kernel.links)
	}
	if b.kernel.node != nil {
		b.t.Errorf("node objects left: %+v", *b.kernel.node)
	}
	if len(b.delegates.held) > 0 {
		b.t.Errorf("delegates still hold %v", b.delegates.held)
	}
}
