// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// extent says how much is measured.
type extent struct {
	Rounds, MasqRounds, PartRounds, Warm, Bursts int

	Colds, PeerEvents, Noops int
	TrafficRounds            int
	TrafficRun               time.Duration // whole seconds

	Quick bool
}

func extentOf(quick bool) extent {
	if quick {
		return extent{
			Rounds: 5, MasqRounds: 2, PartRounds: 5, Warm: 1, Bursts: 1,
			Colds: 1, PeerEvents: 40, Noops: 3, TrafficRounds: 2, TrafficRun: time.Second, Quick: true,
		}
	}
	return extent{
		Rounds: 60, MasqRounds: 15, PartRounds: 60, Warm: 5, Bursts: 5,
		Colds: 5, PeerEvents: 600, Noops: 20, TrafficRounds: 11, TrafficRun: 2 * time.Second,
	}
}

// residentPods is how many attachments the agent's memory is measured with.
const residentPods = 250

// results are all measurements of one run.
type results struct {
	Extent extent
	Began  time.Time
	Took   time.Duration

	Main, Masq run
	Bursts     map[string][]rates
	Parts      []*part
	Memory     memory
	CNISize    float64 // MiB

	Peers   manyPeers
	Traffic traffic
}

// measureAll does the whole run, inside namespaces of its own.
func measureAll(ctx context.Context, p places, x extent) (r results, err error) {
	r.Extent, r.Began = x, time.Now()
	if err := settleIn(p); err != nil {
		return r, err
	}
	if err := r.attachments(ctx, p); err != nil {
		return r, err
	}
	if r.Peers, err = measurePeers(ctx, p, x); err != nil {
		return r, err
	}
	if r.Traffic, err = measureTraffic(ctx, p, x); err != nil {
		return r, err
	}
	r.Took = time.Since(r.Began)
	return r, nil
}

// attachments measures ADD and DEL.
func (r *results) attachments(ctx context.Context, p places) (err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := addUplink(h, underlay4); err != nil {
		return err
	}
	say("making %d sandboxes", residentPods+1)
	sandboxes, err := newSandboxes(filepath.Join(p.run(), "netns"), residentPods+1)
	if err != nil {
		return err
	}
	f := newField(p, sandboxes[residentPods])
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.assemble(ctx); err != nil {
		return err
	}
	if err := f.settleDown(ctx); err != nil {
		return err
	}
	if err := r.interleaved(ctx, f, sandboxes); err != nil {
		return err
	}
	if err := r.parts(ctx, f, sandboxes[0]); err != nil {
		return err
	}
	say("measuring the agent's memory with %d attachments", residentPods)
	if r.Memory, err = resident(ctx, f.networks[thick], sandboxes[:residentPods-1]); err != nil {
		return err
	}
	st, err := os.Stat(filepath.Join(p.Weft, "weft-cni"))
	if err != nil {
		return err
	}
	r.CNISize = float64(st.Size()) / (1 << 20)
	return nil
}

func (r *results) interleaved(ctx context.Context, f *field, sandboxes []*sandbox) (err error) {
	lowest, err := newBare()
	if err != nil {
		return err
	}
	x := r.Extent
	all := append(f.pick(thick, thin, ptp, bridge, thick4000, thin4000), lowest)
	say("%d rounds of %d contenders", x.Rounds, len(all))
	if r.Main, err = interleave(ctx, all, sandboxes, x.Rounds, x.Warm); err != nil {
		return err
	}
	masq := f.pick(thickMasq, thinMasq, ptpMasq, bridgeMasq)
	say("%d rounds of %d contenders with masquerade", x.MasqRounds, len(masq))
	if r.Masq, err = interleave(ctx, masq, sandboxes, x.MasqRounds, 1); err != nil {
		return err
	}
	say("%d bursts of %d pods, %d at a time", x.Bursts, burstPods, burstConcurrency)
	r.Bursts, err = bursts(ctx, f.unwatched(thick, ptp, thin), sandboxes[:burstPods], x.Bursts)
	return err
}

func (r *results) parts(ctx context.Context, f *field, s *sandbox) error {
	k, err := kernel.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	inKernel, err := kernelParts(k, s)
	if err != nil {
		return err
	}
	inJournal, closeJournal, err := journalParts(ctx, f.dir("parts"), f.alive)
	if err != nil {
		return err
	}
	r.Parts = append(r.Parts, startParts(f.places)...)
	r.Parts = append(r.Parts, statusParts(f.networks[thin], f.networks[thin4000], f.networks[thick])...)
	r.Parts = append(r.Parts, inKernel...)
	r.Parts = append(r.Parts, inJournal...)
	say("%d rounds of %d parts", r.Extent.PartRounds, len(r.Parts))
	return errors.Join(measure(ctx, r.Parts, r.Extent.PartRounds, r.Extent.Warm), closeJournal())
}

// resident attaches the sandboxes, beside the one that stays, and weighs the agent, which has served
// everything before this too.
func resident(ctx context.Context, n *network, sandboxes []*sandbox) (m memory, err error) {
	unwatched := *n
	unwatched.agent = nil
	containers := make([]string, len(sandboxes))
	for i := range containers {
		containers[i] = newContainerID()
	}
	err = each(sandboxes, burstConcurrency, func(i int) error {
		_, err := unwatched.Attach(ctx, sandboxes[i], containers[i])
		return err
	})
	if err != nil {
		return m, err
	}
	if m, err = n.agent.memory(); err != nil {
		return m, err
	}
	return m, each(sandboxes, burstConcurrency, func(i int) error {
		_, err := unwatched.Detach(ctx, sandboxes[i], containers[i])
		return err
	})
}

// say tells on standard error how far the run is.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
