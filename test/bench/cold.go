// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// member is an agent with a network namespace of its own and all the peers.
type member struct {
	*agent
	node     *sandbox
	stateDir string
}

// overlayName is the VXLAN device over IPv4, which Weft prefers.
const overlayName = "weft-vxlan"

// coldStart starts an agent on a node that has nothing, and returns how long it
// took until the kernel had everything: by its own word, which is then compared
// with the kernel. Whatever comes back is to be ended.
func coldStart(ctx context.Context, p places, c *crowd, run int) (m *member, took time.Duration, err error) {
	if err := c.forgetSelf(); err != nil {
		return nil, 0, err
	}
	dir := filepath.Join(p.run(), fmt.Sprintf("peers-%d", run))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, 0, err
	}
	node, err := newSandbox(filepath.Join(dir, "netns"))
	if err != nil {
		return nil, 0, err
	}
	if err := addUplink(node.inside, underlay4, underlay6); err != nil {
		return nil, 0, err
	}
	m = &member{node: node, stateDir: filepath.Join(dir, "state")}
	start := time.Now()
	m.agent, err = startAgent(p, m.stateDir, node.Path, object{
		"nodeName": selfName,
		"cluster":  object{"directory": c.dir},
	})
	if m.agent == nil || err != nil {
		return m, 0, err
	}
	if _, err := output(exec.CommandContext(ctx, filepath.Join(p.Weft, "weft"), "status", "--wait", "60s", "--state-dir", m.stateDir)); err != nil {
		return m, 0, err
	}
	took = time.Since(start)
	found, err := countOverlay(node)
	if want := (overlay{Routes: 2 * peerCount, Neighbours: 2 * peerCount, FDB: peerCount}); err == nil && found != want {
		err = fmt.Errorf("the agent says that all is in sync, but the kernel has %+v, want %+v", found, want)
	}
	return m, took, err
}

// end stops the agent and takes its namespace away.
func (m *member) end() error {
	var err error
	if m.agent != nil {
		err = m.stop()
	}
	m.node.inside.Close()
	return errors.Join(err, m.node.ns.Close(), unix.Unmount(m.node.Path, unix.MNT_DETACH))
}

// overlay counts what leads to peers by VXLAN.
type overlay struct{ Routes, Neighbours, FDB int }

func countOverlay(s *sandbox) (o overlay, err error) {
	l, err := s.inside.LinkByName(overlayName)
	if err != nil {
		return o, err
	}
	index := l.Attrs().Index
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ours := &netlink.Route{Protocol: kernel.RouteProtocol, LinkIndex: index}
		routes, err := s.inside.RouteListFiltered(family, ours, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_OIF)
		if err != nil {
			return o, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Gw != nil {
				o.Routes++
			}
		}
		neighbours, err := s.inside.NeighList(index, family)
		if err != nil {
			return o, fmt.Errorf("list neighbours: %w", err)
		}
		for _, n := range neighbours {
			if n.State&unix.NUD_PERMANENT != 0 {
				o.Neighbours++
			}
		}
	}
	fdb, err := s.inside.NeighList(index, unix.AF_BRIDGE)
	for _, f := range fdb {
		if f.IP != nil {
			o.FDB++
		}
	}
	return o, err
}

// residence is what the agent's memory comes to, in MiB.
type residence struct {
	Settled memory  // some time after it was done
	Later   memory  // after the events
	Peak    float64 // VmHWM of proc(5): the most that was ever resident
}

// settleTime is what the agent gets to give memory back after much work.
const settleTime = 10 * time.Second

func (m *member) settledMemory(ctx context.Context) (memory, error) {
	select {
	case <-ctx.Done():
		return memory{}, context.Cause(ctx)
	case <-time.After(settleTime):
		return m.memory()
	}
}

func (m *member) peak() (float64, error) {
	kib, err := kibibytes(filepath.Join("/proc", strconv.Itoa(m.cmd.Process.Pid), "status"), "VmHWM:")
	return kib / 1024, err
}
