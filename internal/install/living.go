// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// LivingError says which attachments are in the way of Uninstall. Nothing was
// removed.
type LivingError struct {
	Attachments []string // "namespace/pod interface"
}

func (e *LivingError) Error() string {
	const most = 10
	list := strings.Join(e.Attachments[:min(most, len(e.Attachments))], ", ")
	if more := len(e.Attachments) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("pods are attached here (%d): %s; drain the node, or use --force to cut them off. Nothing was removed", len(e.Attachments), list)
}

// AgentError says that the agent runs, which would make again whatever is
// removed. Nothing was removed.
type AgentError struct {
	StateDir string
	PID      int // 0: not known
}

func (e *AgentError) Error() string {
	return fmt.Sprintf("the agent of %s runs (process %d): stop it first, in a cluster by deleting its DaemonSet. Nothing was removed", e.StateDir, e.PID)
}

// lookEvery is the time between two looks at what is in the way.
const lookEvery = 500 * time.Millisecond

// vacant waits until there is neither agent nor pod, or ctx ends; it looks once
// at least. With force, pods do not matter. The error is the last look's.
func (n Node) vacant(ctx context.Context, k *kernel.Handle, force bool, log *slog.Logger) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var told string
	for {
		err := n.inTheWay(k, force)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			log.Info("waiting", "for", told)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (n Node) inTheWay(k *kernel.Handle, force bool) error {
	if pid, alive := journal.OwnerAlive(n.StateDir); alive {
		return &AgentError{StateDir: n.StateDir, PID: pid}
	}
	if force {
		return nil
	}
	living, err := n.living(k)
	if err != nil {
		return err
	}
	if len(living) > 0 {
		return &LivingError{Attachments: living}
	}
	return nil
}

// living returns what pods of this node have of ours: host ends, whatever state
// directory they belong to, and addresses that other plugins hold through
// weft-ipam for a sandbox that is there.
func (n Node) living(k *kernel.Handle) ([]string, error) {
	owned, err := k.Owned()
	if err != nil {
		return nil, fmt.Errorf("look for interfaces of pods: %w", err)
	}
	var living []string
	for _, o := range owned {
		living = append(living, describe(o))
	}
	held, err := n.reservations(k)
	slices.Sort(held)
	return append(living, held...), err
}

func describe(o kernel.Owned) string {
	_, key, pod, ok := attach.ParseAlias(o.Alias)
	switch {
	case ok && pod.String() != "":
		return pod.String() + " " + o.HostIfname
	case ok:
		return key.String() + " " + o.HostIfname
	}
	return o.HostIfname
}

// reservations are in the journal only. One that cannot be read is no reason to
// leave all the rest on the node for ever.
func (n Node) reservations(k *kernel.Handle) ([]string, error) {
	f, err := journal.Read(n.StateDir, facts.New)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	var held []string
	for _, rec := range f.Records() {
		if rec.Kind != facts.IPAM {
			continue
		}
		ev, err := engine.Witness(rec, k, true)
		if err != nil {
			return nil, fmt.Errorf("look for the sandbox of %s: %w", rec.Key, err)
		}
		if ev.Namespace {
			held = append(held, fmt.Sprintf("%s %v", rec.Key, rec.Addresses))
		}
	}
	return held, nil
}
