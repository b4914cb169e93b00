// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
)

var webPort = attach.Port{Protocol: attach.TCP, HostPort: 8080, ContainerPort: 80}

func (b *bench) portRequest(container string, ports ...attach.Port) AddRequest {
	b.t.Helper()
	r := b.request(container)
	r.Pod, r.Ports = attach.Pod{Namespace: "default", Name: container}, ports
	return r
}

func TestPortHasOneHolder(t *testing.T) {
	b := newBench(t)
	a, err := b.Add(ctx, b.portRequest("c1", webPort))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Plan.Ports) != 1 || a.Plan.Ports[0].Pod.Addr() != a.Spec.Addresses[0].Addr {
		t.Errorf("the plan maps %v", a.Plan.Ports)
	}
	one := webPort
	one.HostIP = netip.MustParseAddr("192.0.2.1")
	_, err = b.Add(ctx, b.portRequest("c2", one))
	var held *facts.PortError
	if !errors.As(err, &held) || !strings.Contains(err.Error(), "pod default/c1") {
		t.Fatalf("a second holder gets %v", err)
	}
	if _, found := b.record("c2"); found || len(b.used()) != 1 || len(b.kernel.links) != 1 {
		t.Errorf("the refused ADD left something: used %v", b.used())
	}
	delegated := b.portRequest("c3", webPort)
	delegated.Delegate = &facts.Delegate{Type: "other"}
	delegated.Grant = func(context.Context) (Granted, error) {
		t.Error("the delegate is asked for an address that nobody will get")
		return Granted{}, nil
	}
	if _, err = b.Add(ctx, delegated); !errors.As(err, &held) {
		t.Errorf("with a delegate a second holder gets %v", err)
	}
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(ctx, b.portRequest("c2", one)); err != nil {
		t.Errorf("the port is free, but: %v", err)
	}
}

// Whoever finishes a DEL that was killed cannot know whether it came to the
// flows: by then nothing in the kernel tells what the ports were.
func TestResumedDelForgetsFlows(t *testing.T) {
	b := newBench(t)
	a, err := b.Add(ctx, b.portRequest("c1", webPort))
	if err != nil {
		t.Fatal(err)
	}
	err = b.store.Update(ctx, func(*facts.Facts) ([]string, error) {
		entry, err := facts.EncodeReleasing(b.now(), key("c1"))
		return []string{entry}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	if len(b.kernel.forgotten) != 1 || b.kernel.forgotten[0] != a.Plan.Ports[0] {
		t.Errorf("DEL forgot the flows of %v, want those of %v", b.kernel.forgotten, a.Plan.Ports)
	}
}

// A pod is replaced by one with the same port as soon as its DEL is answered,
// when the interface may still wait for its removal.
func TestPortOnItsWayOutIsWaitedFor(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.portRequest("c1", webPort)); err != nil {
		t.Fatal(err)
	}
	b.Reaper = NewReaper(func(k attach.Key, err error) { t.Errorf("%s: %v", k, err) })
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	go b.Reaper.Run(b.Engine)
	defer b.Reaper.Close()
	if _, err := b.Add(ctx, b.portRequest("c2", webPort)); err != nil {
		t.Errorf("ADD after the DEL of the holder: %v", err)
	}
}

// With the records lost, the kernel tells who holds a port.
func TestAdoptedPortIsHeld(t *testing.T) {
	b := newBench(t)
	b.attached("c1")
	b.kernel.mu.Lock()
	name := key("c1").HostIfname()
	p := b.kernel.links[name]
	ports, err := attach.Mappings([]attach.Port{webPort}, []attach.Address{{Addr: p.HostRoutes[0].Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	p.Ports = ports
	b.kernel.links[name] = p
	b.kernel.mu.Unlock()
	b.forget("c1")
	wantActions(t, b.sweep(), "c1 adopted")
	var held *facts.PortError
	if _, err := b.Add(ctx, b.portRequest("c2", webPort)); !errors.As(err, &held) || held.Owner != key("c1") {
		t.Errorf("got %v", err)
	}
}

// forget ends a record as if the journal had been lost.
func (b *bench) forget(container string) {
	b.t.Helper()
	err := b.store.Update(ctx, func(*facts.Facts) ([]string, error) {
		releasing, err := facts.EncodeReleasing(b.now(), key(container))
		if err != nil {
			return nil, err
		}
		released, err := facts.EncodeReleased(b.now(), key(container))
		return []string{releasing, released}, err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// What an attachment asks for is in its record, so that CHECK, repair and a
// repeated ADD know it.
func TestLimitsAreRecorded(t *testing.T) {
	b := newBench(t)
	r := b.portRequest("c1", webPort)
	r.Limits = attach.Limits{Ingress: attach.Limit{Rate: 10_000_000}, Egress: attach.Limit{Rate: 5_000_000, Burst: 1 << 24}}
	if _, err := b.Add(ctx, r); err != nil {
		t.Fatal(err)
	}
	rec, _ := b.record("c1")
	d, err := rec.Detail()
	if err != nil || d.Limits != r.Limits || len(d.Ports) != 1 || d.Ports[0] != webPort {
		t.Errorf("recorded are %+v and %v, %v", d.Limits, d.Ports, err)
	}
}
