// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
)

// Garbage collection compares three witnesses: the record, the sandbox's
// namespace (by device and inode, since a path may be reused), and the host's
// end of the interface pair, which the kernel removes with the namespace.
//
// An attachment is dead when namespace and interface are both gone. One
// witness is not enough: a path may be unmounted while processes still run in
// the namespace, and an interface may be missing because somebody deleted it.

// Grace is the time between two observations after which a dead attachment is
// released without the runtime's word.
const Grace = 30 * time.Second

// Finding is something that garbage collection saw, and what it did.
type Finding struct {
	Key       attach.Key
	Addresses []string
	Observed  string // what was seen: "namespace gone, interface gone"
	Action    string // what was done: "suspected", "released", "undone", "adopted", "kept"
	Err       error  // why the action failed
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s %v: %s: %s", f.Key, f.Addresses, f.Observed, f.Action)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Evidence is what the witnesses say of one record.
type Evidence struct {
	Namespace bool // the recorded path leads to the recorded namespace
	Link      bool // the host end exists
}

func (ev Evidence) String() string {
	word := func(present bool) string {
		if present {
			return "present"
		}
		return "gone"
	}
	return "namespace " + word(ev.Namespace) + ", interface " + word(ev.Link)
}

// Dead reports whether nothing can be using the record's addresses any more.
func (ev Evidence) Dead() bool { return !ev.Namespace && !ev.Link }

// lives reports whether the sandbox demonstrably lives with what the record
// says: a host end exists only as long as the namespace of the other end does,
// wherever that is mounted.
func (ev Evidence) lives(kind facts.Kind) bool {
	return ev.Link || (kind == facts.IPAM && ev.Namespace)
}

// Links is what a witness needs of the kernel.
type Links interface {
	LinkExists(name string) (bool, error)
}

// Witness gathers the evidence for a record. While the namespace is there,
// nothing can be dead, and the interface is asked for only if the caller wants
// both.
func Witness(rec facts.Record, links Links, both bool) (Evidence, error) {
	d, err := rec.Detail()
	if err != nil {
		return Evidence{}, err
	}
	id, err := kernel.StatNetns(d.Netns)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Evidence{}, err
	}
	ev := Evidence{Namespace: err == nil && d.Netns != "" && facts.NetnsID(id) == d.NetnsID}
	if rec.Kind == facts.Veth && (both || !ev.Namespace) {
		if ev.Link, err = links.LinkExists(rec.Key.HostIfname()); err != nil {
			return Evidence{}, err
		}
	}
	return ev, nil
}

// Collect serves the GC verb for one network: it releases what the runtime
// does not list and the evidence does not contradict. With no list (listed is
// nil) only what is evidently dead is released.
//
// What lives by the evidence is kept whatever the list says: a list may be
// empty because the runtime lost its cache.
func (e *Engine) Collect(ctx context.Context, network string, kind facts.Kind, listed func(attach.Key) bool) ([]Finding, error) {
	records, err := e.records(ctx)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	var errs []error
	for _, rec := range records {
		if rec.Key.Network != network || rec.Kind != kind || (listed != nil && listed(rec.Key)) {
			continue
		}
		ev, err := Witness(rec, e.Kernel, true)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		unlisted := listed != nil && !ev.lives(rec.Kind)
		if rec.Phase == facts.Complete && !unlisted && !ev.Dead() {
			continue
		}
		f := e.release(ctx, rec, ev)
		findings = append(findings, f)
		errs = append(errs, f.Err)
	}
	e.write(findings)
	return findings, errors.Join(errs...)
}

func (e *Engine) records(ctx context.Context) (records []facts.Record, err error) {
	err = e.Store.View(ctx, func(f *facts.Facts) error {
		records = f.Records()
		return nil
	})
	return records, err
}

// tryLock is how long garbage collection waits for a key. Whoever holds the
// lock is alive and will finish by itself; but a free one must be taken on a
// machine so busy that this goroutine does not run for some milliseconds.
const tryLock = 20 * time.Millisecond

// release ends a record that is dead or half-finished, unless somebody is at
// work on its key or it has changed meanwhile.
func (e *Engine) release(ctx context.Context, rec facts.Record, ev Evidence) Finding {
	f := Finding{Key: rec.Key, Addresses: texts(rec.Addresses), Observed: ev.String(), Action: "released"}
	if rec.Phase != facts.Complete {
		f.Observed, f.Action = "phase "+rec.Phase.String()+" without a process at work", "undone"
	}
	return e.alone(ctx, rec, f, func(ctx context.Context, rec facts.Record) error { return e.remove(ctx, rec, nil) })
}

// alone acts on a record under its key's lock, unless somebody is at work on
// it or it has changed since it was read.
func (e *Engine) alone(ctx context.Context, rec facts.Record, f Finding, act func(context.Context, facts.Record) error) Finding {
	lockCtx, cancel := context.WithTimeout(ctx, tryLock)
	defer cancel()
	unlock, err := e.Store.LockKey(lockCtx, rec.Key.String())
	if err != nil {
		f.Observed, f.Action = "in use by a call in flight", "kept"
		if !errors.Is(err, context.DeadlineExceeded) {
			f.Err = err
		}
		return f
	}
	defer unlock()
	current, found, err := e.lookup(ctx, rec.Key)
	switch {
	case err != nil:
		f.Err = err
	case !found || current.Since != rec.Since || current.Phase != rec.Phase:
		f.Observed, f.Action = "changed meanwhile", "kept"
	default:
		f.Err = act(ctx, current)
	}
	return f
}

// undoHalf takes back what a dead process left half done. An ADD whose sandbox
// lives may yet be repeated, and shall get the address that its intent names:
// then only the interface goes, and the record stays until the sandbox does.
// (What a delegate granted is not kept: its own plugin would refuse to grant it
// twice.)
func (e *Engine) undoHalf(ctx context.Context, rec facts.Record) (Finding, error) {
	if rec.Phase != facts.Intent || len(rec.Addresses) == 0 {
		return e.release(ctx, rec, Evidence{}), nil
	}
	ev, err := Witness(rec, e.Kernel, true)
	if err != nil {
		return Finding{}, err
	}
	d, err := rec.Detail()
	switch {
	case err != nil:
		return Finding{}, err
	case !ev.Namespace || d.Delegate != nil:
		return e.release(ctx, rec, ev), nil
	case !ev.Link:
		return Finding{}, nil
	}
	f := Finding{Key: rec.Key, Addresses: texts(rec.Addresses), Observed: "phase intent without a process at work, " + ev.String(), Action: "undone, but for the address"}
	return e.alone(ctx, rec, f, func(_ context.Context, rec facts.Record) error {
		return e.Kernel.Detach(rec.Key.HostIfname())
	}), nil
}

// Sweep is garbage collection that nobody asked for. It undoes what dead
// processes left half done, releases what was seen dead twice with at least
// Grace in between, and adopts interfaces of ours whose record was lost: they
// belong to a pod that runs, and its address must not be given to another. It
// removes what is left of attachments beside their interface.
func (e *Engine) Sweep(ctx context.Context) ([]Finding, error) {
	records, err := e.records(ctx)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	var errs []error
	for _, rec := range records {
		f, err := e.sweepOne(ctx, rec)
		if err != nil {
			errs = append(errs, err)
		}
		if f.Action != "" && f.Action != "kept" {
			findings = append(findings, f)
			errs = append(errs, f.Err)
		}
	}
	adopted, err := e.Adopt(ctx)
	orphans, oerr := e.removeOrphans()
	errs = append(errs, oerr)
	forgotten, ferr := e.ForgetBoots(ctx)
	findings = slices.Concat(findings, adopted, orphans, forgotten)
	e.write(findings)
	return findings, errors.Join(append(errs, err, ferr)...)
}

func (e *Engine) sweepOne(ctx context.Context, rec facts.Record) (Finding, error) {
	if rec.Phase != facts.Complete {
		return e.undoHalf(ctx, rec)
	}
	ev, err := Witness(rec, e.Kernel, false)
	if err != nil {
		return Finding{}, err
	}
	now := e.now()
	switch {
	case !ev.Dead() && rec.Suspect == 0:
		return Finding{}, nil
	case !ev.Dead():
		entry, err := facts.EncodeCleared(now, rec.Key)
		return Finding{Key: rec.Key, Addresses: texts(rec.Addresses), Observed: ev.String(), Action: "cleared", Err: e.note(ctx, rec, entry, err)}, nil
	case rec.Suspect == 0:
		entry, err := facts.EncodeSuspect(now, rec.Key)
		return Finding{Key: rec.Key, Addresses: texts(rec.Addresses), Observed: ev.String(), Action: "suspected", Err: e.note(ctx, rec, entry, err)}, nil
	case now-rec.Suspect < int64(Grace):
		return Finding{}, nil
	default:
		return e.release(ctx, rec, ev), nil
	}
}

// note writes an entry about a record that may have ended meanwhile.
func (e *Engine) note(ctx context.Context, rec facts.Record, entry string, err error) error {
	if err != nil {
		return err
	}
	return e.Store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		if current, found := f.Get(rec.Key); !found || current.Since != rec.Since {
			return nil, nil
		}
		return []string{entry}, nil
	})
}

// Adopt records interfaces that carry our mark, and this instance's name,
// without a record.
func (e *Engine) Adopt(ctx context.Context) ([]Finding, error) {
	owned, err := e.Kernel.Owned()
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, o := range owned {
		instance, k, pod, ok := attach.ParseAlias(o.Alias)
		if !ok || instance != e.Instance || k.HostIfname() != o.HostIfname {
			continue
		}
		f, err := e.adoptOne(ctx, k, pod, o)
		if err != nil {
			f = Finding{Key: k, Observed: "interface " + o.HostIfname + " without a record", Action: "adopted", Err: err}
		}
		if f.Action != "" {
			findings = append(findings, f)
		}
	}
	return findings, nil
}

func (e *Engine) adoptOne(ctx context.Context, k attach.Key, pod attach.Pod, o kernel.Owned) (Finding, error) {
	lockCtx, cancel := context.WithTimeout(ctx, tryLock)
	defer cancel()
	unlock, err := e.Store.LockKey(lockCtx, k.String())
	if errors.Is(err, context.DeadlineExceeded) {
		return Finding{}, nil // somebody is at work on it
	}
	if err != nil {
		return Finding{}, err
	}
	defer unlock()
	if _, found, err := e.lookup(ctx, k); err != nil || found {
		return Finding{}, err
	}
	// A DEL may have ended between the dump and the lock.
	if exists, err := e.Kernel.LinkExists(o.HostIfname); err != nil || !exists {
		return Finding{}, err
	}
	f := Finding{Key: k, Addresses: texts(o.Addresses), Observed: "interface " + o.HostIfname + " without a record", Action: "adopted"}
	spec := attach.Spec{Key: k, Pod: pod, MTU: o.MTU}
	for _, m := range o.Ports {
		spec.Ports = append(spec.Ports, m.Port())
	}
	for _, a := range o.Addresses {
		spec.Addresses = append(spec.Addresses, attach.Address{Addr: a})
	}
	d := facts.NewDetail(spec)
	d.Adopted = true
	intent, err := facts.EncodeIntent(e.now(), k, facts.Veth, o.Addresses, d)
	if err != nil {
		return f, err
	}
	complete, err := facts.EncodeComplete(e.now(), k)
	if err != nil {
		return f, err
	}
	return f, e.Store.Update(ctx, func(*facts.Facts) ([]string, error) { return []string{intent, complete}, nil })
}
