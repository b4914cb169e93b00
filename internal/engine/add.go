// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/kernel"
)

// AddRequest asks for one attachment.
type AddRequest struct {
	Key     attach.Key
	Pod     attach.Pod
	Network Network
	Netns   *kernel.Netns
	MAC     attach.MAC
	Sysctls []attach.Sysctl
	Want    []netip.Addr // requested addresses; empty: the allocator chooses
	Ports   []attach.Port
	Limits  attach.Limits

	// Delegate, where set, names the IPAM plugin that grants the addresses
	// instead of Network.Pool, and Grant executes its ADD.
	Delegate *facts.Delegate
	Grant    func(ctx context.Context) (Granted, error)
	// Ungrant executes its DEL with the configuration of this call, which may
	// be the corrected one of an earlier attempt that got stuck.
	Ungrant func(ctx context.Context) error

	// Answer, where set, returns what is recorded of the answer to the runtime
	// besides what follows from the attachment (facts.Detail.Answer). It is
	// called after Grant.
	Answer func() (json.RawMessage, error)

	// Announce, where set, is called once the addresses are reserved and
	// recorded, and before the kernel is touched: for what others must know
	// first. Undoing it is the caller's.
	Announce func(ctx context.Context, a Attachment) error
	// Mark, where set, is told each step that is done, for those who measure.
	Mark func(step string)
}

// Steps that AddRequest.Mark is told.
const (
	Reserved  = "reserved"  // addresses are taken, the intent is written
	Announced = "announced" // those who must know first do
	Attached  = "attached"  // the kernel has everything
)

func (r AddRequest) mark(step string) {
	if r.Mark != nil {
		r.Mark(step)
	}
}

// Attachment is an attachment as ADD made it.
type Attachment struct {
	Spec attach.Spec
	Plan attach.Plan
}

// Add makes the attachment. It is all or nothing: on error every step is
// undone, unless undoing fails too, and then the record stays for garbage
// collection or the next call for this key.
//
// A half-finished earlier ADD of the same key is cleaned up first and its
// addresses are taken again. A complete one is refused with *AttachedError and
// nothing changes.
func (e *Engine) Add(ctx context.Context, r AddRequest) (Attachment, error) {
	unlock, err := e.Store.LockKey(ctx, r.Key.String())
	if err != nil {
		return Attachment{}, err
	}
	defer unlock()

	earlier, found, err := e.lookup(ctx, r.Key)
	if err != nil {
		return Attachment{}, err
	}
	if found {
		if err := e.clearEarlier(ctx, earlier, r.Ungrant); err != nil {
			return Attachment{}, err
		}
	}
	exists, err := e.Kernel.LinkExistsIn(r.Netns, r.Key.Ifname)
	if err != nil {
		return Attachment{}, err
	}
	if exists {
		return Attachment{}, &kernel.ExistsError{Ifname: r.Key.Ifname, Netns: r.Netns.Path}
	}
	if r.Network.MTU == 0 {
		if r.Network.MTU, err = e.Kernel.UplinkMTU(); err != nil {
			return Attachment{}, err
		}
	}
	a, err := e.reserve(ctx, r, earlier.Addresses)
	if err != nil {
		return Attachment{}, err
	}
	r.mark(Reserved)
	if err := e.realize(ctx, r, a); err != nil {
		return Attachment{}, errors.Join(err, e.undo(ctx, r.Key))
	}
	return a, nil
}

// clearEarlier removes what a dead process left in the kernel for this key. It
// refuses if the attachment is complete and alive.
func (e *Engine) clearEarlier(ctx context.Context, rec facts.Record, ungrant func(context.Context) error) error {
	if rec.Phase == facts.Complete {
		alive, err := e.Kernel.LinkExists(rec.Key.HostIfname())
		if err != nil {
			return err
		}
		if alive {
			return &AttachedError{Record: rec}
		}
	}
	if err := e.Kernel.Detach(rec.Key.HostIfname()); err != nil {
		return fmt.Errorf("clean up the earlier attachment %s: %w", rec.Key, err)
	}
	d, err := rec.Detail()
	if err != nil {
		return err
	}
	if d.Delegate == nil {
		return nil
	}
	if ungrant == nil {
		ungrant = func(ctx context.Context) error { return e.Delegates.Release(ctx, rec.Key, *d.Delegate) }
	}
	if err := ungrant(ctx); err != nil {
		return fmt.Errorf("clean up the earlier attachment %s: %w", rec.Key, err)
	}
	return nil
}

// reserve takes addresses and writes the intent: nothing has been changed yet
// if it fails.
func (e *Engine) reserve(ctx context.Context, r AddRequest, earlier []netip.Addr) (Attachment, error) {
	reserve := func() (Attachment, error) { return e.reserveOwn(ctx, r, earlier) }
	if r.Delegate != nil {
		reserve = func() (Attachment, error) { return e.reserveDelegated(ctx, r) }
	}
	a, err := reserve()
	if scarce(err) && e.Reaper != nil && e.Reaper.drain(ctx) {
		// Something whose DEL has been answered was still on its way.
		return reserve()
	}
	return a, err
}

// scarce reports whether the address or the port that is wanted, or any, is
// held.
func scarce(err error) bool {
	var used *ipam.InUseError
	var exhausted *ipam.ExhaustedError
	var port *facts.PortError
	return errors.As(err, &used) || errors.As(err, &exhausted) || errors.As(err, &port)
}

func (e *Engine) reserveOwn(ctx context.Context, r AddRequest, earlier []netip.Addr) (Attachment, error) {
	var a Attachment
	err := e.Store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		granted, err := e.allocate(f.Usage(facts.Veth, r.Key.Network), r.Key, r.Network, r.Want, earlier)
		if err != nil {
			return nil, named(f, err)
		}
		if a, err = e.describe(f, r, granted); err != nil {
			return nil, err
		}
		return e.intent(r, a)
	})
	return a, err
}

// allocate grants one address of every set. The addresses of an earlier,
// half-finished attempt are preferred to new ones as long as they still fit.
func (e *Engine) allocate(u *ipam.Usage, k attach.Key, n Network, want, earlier []netip.Addr) (Granted, error) {
	req := ipam.Request{Owner: k.String(), Want: want, Now: e.now(), Cooldown: int64(n.Cooldown), Avoid: n.Avoid}
	if len(want) == 0 && len(earlier) > 0 {
		again := req
		again.Want = earlier
		if grant, err := u.Allocate(n.Pool, again); err == nil {
			return granted(grant, n.Routes), nil
		}
	}
	grant, err := u.Allocate(n.Pool, req)
	if err != nil {
		return Granted{}, err
	}
	return granted(grant, n.Routes), nil
}

func granted(grant ipam.Grant, routes []attach.Route) Granted {
	g := Granted{Routes: routes}
	for _, al := range grant {
		g.Addresses = append(g.Addresses, attach.Address{Addr: al.Addr, Subnet: al.Range.Subnet, Gateway: al.Range.Gateway})
	}
	return g
}

// reserveDelegated writes an intent without addresses before the delegate is
// executed, so that a kill in between cannot leak what it grants, and a second
// one with the addresses after.
func (e *Engine) reserveDelegated(ctx context.Context, r AddRequest) (Attachment, error) {
	var a Attachment
	err := e.Store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		if err := f.CheckPorts(r.Key, r.Ports); err != nil {
			return nil, err
		}
		return e.intent(r, Attachment{Spec: attach.Spec{Key: r.Key, Pod: r.Pod, Ports: r.Ports}})
	})
	if err != nil {
		return a, err
	}
	g, err := r.Grant(ctx)
	if err == nil {
		err = e.Store.Update(ctx, func(f *facts.Facts) (_ []string, err error) {
			if a, err = e.describe(f, r, g); err != nil {
				return nil, err
			}
			return e.intent(r, a)
		})
	}
	if err != nil {
		return a, errors.Join(err, e.undo(ctx, r.Key))
	}
	return a, nil
}

// describe derives what the kernel shall hold.
func (e *Engine) describe(f *facts.Facts, r AddRequest, g Granted) (Attachment, error) {
	rank, err := nextRank(f, r.Key)
	if err != nil {
		return Attachment{}, err
	}
	if err := f.CheckPorts(r.Key, r.Ports); err != nil {
		return Attachment{}, err
	}
	spec := attach.Spec{
		Key: r.Key, Instance: e.Instance, Pod: r.Pod, MAC: r.MAC, MTU: r.Network.MTU,
		Addresses: g.Addresses, Routes: g.Routes, Sysctls: r.Sysctls, Rank: rank,
		Ports: r.Ports, Limits: r.Limits,
	}
	plan, err := attach.NewPlan(spec)
	if err != nil {
		return Attachment{}, &PlanError{Err: err}
	}
	return Attachment{Spec: spec, Plan: plan}, nil
}

// nextRank returns the rank of a new attachment: behind all that its container
// has.
func nextRank(f *facts.Facts, k attach.Key) (rank int, err error) {
	f.Siblings(k, func(rec facts.Record) bool {
		var d facts.Detail
		if rec.Kind != facts.Veth {
			return true
		}
		if d, err = rec.Detail(); err == nil {
			rank = max(rank, d.Rank+1)
		}
		return err == nil
	})
	return rank, err
}

// PlanError says that configuration and grant together make no possible
// attachment.
type PlanError struct{ Err error }

func (e *PlanError) Error() string { return e.Err.Error() }
func (e *PlanError) Unwrap() error { return e.Err }

func (e *Engine) intent(r AddRequest, a Attachment) ([]string, error) {
	d := facts.NewDetail(a.Spec)
	d.Netns, d.NetnsID = r.Netns.Path, facts.NetnsID(r.Netns.ID())
	d.Masquerade = r.Network.Masquerade
	d.Delegate = r.Delegate
	d.Pool = r.Network.Pool.Subnets()
	if r.Answer != nil {
		var err error
		if d.Answer, err = r.Answer(); err != nil {
			return nil, err
		}
	}
	addrs := make([]netip.Addr, 0, len(a.Spec.Addresses))
	for _, ad := range a.Spec.Addresses {
		addrs = append(addrs, ad.Addr)
	}
	entry, err := facts.EncodeIntent(e.now(), r.Key, facts.Veth, addrs, d)
	return []string{entry}, err
}

// realize makes the kernel hold the plan and records that it does.
func (e *Engine) realize(ctx context.Context, r AddRequest, a Attachment) error {
	if r.Announce != nil {
		if err := r.Announce(ctx, a); err != nil {
			return err
		}
		r.mark(Announced)
	}
	if e.Node == nil {
		if err := e.ensureNode(ctx, r, a.Spec); err != nil {
			return err
		}
	}
	if err := e.Kernel.Attach(r.Netns, a.Plan); err != nil {
		return err
	}
	entry, err := facts.EncodeComplete(e.now(), r.Key)
	if err = e.append1(ctx, entry, err); err == nil {
		r.mark(Attached)
	}
	return err
}

// undo takes back an ADD that failed.
func (e *Engine) undo(ctx context.Context, k attach.Key) error {
	// The caller's deadline may be what made ADD fail; undoing must not.
	ctx = context.WithoutCancel(ctx)
	rec, found, err := e.lookup(ctx, k)
	if err != nil || !found {
		return err
	}
	if err := e.remove(ctx, rec, nil); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}
