// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/wire"
)

// part is one ingredient of ADD or DEL, measured by itself.
type part struct {
	Name string // as in "bench part_NAME"
	What string // for the report
	once func(ctx context.Context) error

	before, after func() error // not measured; may be nil
	took          []float64    // milliseconds, one per round
}

// measure lets the parts take turns, as contenders do.
func measure(ctx context.Context, parts []*part, rounds, warm int) error {
	for round := range warm + rounds {
		for _, i := range order(len(parts), round) {
			p := parts[i]
			took, err := p.measure(ctx)
			if err != nil {
				return fmt.Errorf("part %s: %w", p.Name, err)
			}
			if round >= warm {
				p.took = append(p.took, took)
			}
		}
	}
	return nil
}

func (p *part) measure(ctx context.Context) (took float64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if p.before != nil {
		if err := p.before(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err = p.once(ctx)
	took = millis(time.Since(start))
	if p.after != nil {
		err = errors.Join(err, p.after())
	}
	return took, err
}

// startParts execute programs that do as little as they can.
func startParts(p places) []*part {
	versionOf := func(dir, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, filepath.Join(dir, name))
			cmd.Env = append(os.Environ(), "CNI_COMMAND=VERSION")
			cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0"}`)
			_, err := cmd.Output()
			return err
		}
	}
	return []*part{
		{Name: "start_nothing", What: "execute a static Go program that does nothing", once: versionOf(filepath.Dir(p.nothing()), "nothing")},
		{Name: "start_weft_cni", What: "execute weft-cni with VERSION", once: versionOf(p.Weft, "weft-cni")},
		{Name: "start_host_local", What: "execute host-local with VERSION", once: versionOf(p.Ref, "host-local")},
		{Name: "start_ptp", What: "execute ptp with VERSION", once: versionOf(p.Ref, "ptp")},
	}
}

// statusParts ask for STATUS: in thin mode that is start, configuration and
// journal without the kernel; in thick mode start and socket.
func statusParts(thin, thin4000, thick *network) []*part {
	parts := []*part{
		{Name: "status_thin", What: "STATUS of thin: start, configuration, journal", once: thin.status},
		{Name: "status_thin_4000", What: "the same with 4,000 addresses in use", once: thin4000.status},
		{Name: "status_thick", What: "STATUS of thick: start, configuration, socket, agent", once: thick.status},
	}
	socket := func(context.Context) error {
		r := wire.Request{Env: map[string]string{"CNI_COMMAND": "STATUS"}, Config: pluginConf(thick)}
		resp, err := wire.Call(thick.agent.socket, r, -1, time.Now().Add(10*time.Second))
		if err == nil && resp.Failed {
			err = fmt.Errorf("the agent says %s", resp.Output)
		}
		return err
	}
	return append(parts, &part{Name: "socket", What: "one question over the agent's socket, answered", once: socket})
}

// pluginConf is what libcni gives the plugin on standard input.
func pluginConf(n *network) []byte {
	conf := string(n.list.Plugins[0].Bytes)
	return []byte(strings.Replace(conf, "{", `{"cniVersion":"1.1.0","name":"`+networkName(n.name)+`",`, 1))
}

// kernelParts do Weft's own kernel work in this process.
func kernelParts(k *kernel.Handle, s *sandbox) ([]*part, error) {
	ns, err := kernel.OpenNetns(s.Path)
	if err != nil {
		return nil, err
	}
	plan, err := attach.NewPlan(exampleSpec())
	if err != nil {
		return nil, err
	}
	attach := func() error { return k.Attach(ns, plan) }
	detach := func() error { return k.Detach(plan.HostIfname) }
	return []*part{
		{Name: "kernel_attach", What: "the kernel's part of ADD, in this process", after: detach,
			once: func(context.Context) error { return attach() }},
		{Name: "kernel_detach", What: "the kernel's part of DEL for one interface, mostly an RCU grace period", before: attach,
			once: func(context.Context) error { return detach() }},
		{Name: "kernel_node", What: "look whether the node is ready, which thin does at every ADD",
			once: func(context.Context) error { return k.EnsureNode(exampleNode(plan)) }},
	}, nil
}

func exampleSpec() attach.Spec {
	pool := netip.MustParsePrefix("10.101.0.0/20")
	return attach.Spec{
		Key:       attach.Key{Network: "net-part", ContainerID: newContainerID(), Ifname: ifname},
		Instance:  "/run/weft",
		Pod:       attach.Pod{Namespace: "bench", Name: "part"},
		MTU:       1500,
		Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.101.0.2"), Subnet: pool, Gateway: netip.MustParseAddr("10.101.0.1")}},
		Routes:    []attach.Route{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}},
	}
}

func exampleNode(p attach.Plan) kernel.Node {
	return kernel.Node{Gateways: []netip.Addr{p.Neighbours[0].Addr}, IPv4: true}
}

// journalParts write what one ADD and one DEL write: as the owner, who has the
// facts in memory, and sharing, where a process opens, locks, reads and closes
// the journal for one call.
func journalParts(ctx context.Context, dir string, alive *sandbox) (parts []*part, closeAll func() error, err error) {
	owner, err := journal.Own(ctx, filepath.Join(dir, "owned"), facts.New)
	if err != nil {
		return nil, nil, err
	}
	full := filepath.Join(dir, "full")
	if err := prefill(ctx, full, "part", "10.102.0.0/20", usedAddresses, alive); err != nil {
		return nil, nil, err
	}
	sharing := func(dir string) func(context.Context) error {
		return func(ctx context.Context) error {
			store, err := journal.Share(dir, facts.New)
			if err != nil {
				return err
			}
			return errors.Join(writeLife(ctx, store, alive.Path), store.Close())
		}
	}
	return []*part{
		{Name: "journal_owner", What: "journal of one ADD and one DEL, four entries, by the agent", once: func(ctx context.Context) error {
			return writeLife(ctx, owner, alive.Path)
		}},
		{Name: "journal_sharing", What: "the same by a process that has to open it, empty", once: sharing(filepath.Join(dir, "shared"))},
		{Name: "journal_sharing_4000", What: "the same with 4,000 addresses in use", once: sharing(full)},
	}, owner.Close, nil
}

// writeLife journals an attachment from intent to release.
func writeLife(ctx context.Context, store *journal.Store[*facts.Facts], path string) error {
	spec := exampleSpec()
	entries, err := attachedEntries(spec, path, facts.NetnsID{Dev: 4, Ino: 4026531840})
	if err != nil {
		return err
	}
	now := time.Now().UnixNano()
	releasing, err := facts.EncodeReleasing(now, spec.Key)
	if err != nil {
		return err
	}
	released, err := facts.EncodeReleased(now, spec.Key)
	if err != nil {
		return err
	}
	for _, e := range append(entries, releasing, released) {
		if err := store.Update(ctx, func(*facts.Facts) ([]string, error) { return []string{e}, nil }); err != nil {
			return err
		}
	}
	return nil
}
