// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/plugin"

	"weft.dev/weft/internal/core/facts"
)

// Node is one host. All its paths lie in Dir.
type Node struct {
	Dir      string
	StateDir string
	Socket   string
	CNIPath  string // CNI_PATH of every call

	host   *kernel.Netns
	serial atomic.Int64
}

// New makes a node. The name is for the reader, and part of a socket's path, so
// it must be short.
func New(name string) (*Node, error) {
	n, err := empty(name)
	if err != nil {
		return nil, err
	}
	host := filepath.Join(n.Dir, "host")
	if err := bindNetns(host, addUplink); err != nil {
		return nil, err
	}
	n.host, err = kernel.OpenNetns(host)
	return n, err
}

// Here makes a node of the namespace that this process itself runs in, for an
// agent inside the test.
func Here(name string) (*Node, error) {
	n, err := empty(name)
	if err != nil {
		return nil, err
	}
	if err := addUplink(); err != nil {
		return nil, err
	}
	n.host, err = kernel.OpenNetns("/proc/thread-self/ns/net")
	return n, err
}

// empty makes a node's directory and names what will be in it.
func empty(name string) (*Node, error) {
	dir, err := os.MkdirTemp(Root, name+"-")
	if err != nil {
		return nil, err
	}
	return &Node{Dir: dir, StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "agent.sock"), CNIPath: Bin()}, nil
}

// Close ends the node's namespace.
func (n *Node) Close() error {
	_ = n.host.Close()
	return unbindNetns(filepath.Join(n.Dir, "host"))
}

// Do runs f on a thread in the host's namespace. Processes that f starts run
// there too.
func (n *Node) Do(f func() error) error { return n.host.Do(f) }

// Local is an engine in the test's process, on the node's journal, with a clock
// to set: what a thin plugin's call does, without the waiting.
type Local struct {
	*engine.Engine
	Store *journal.Store[*facts.Facts]
	ahead time.Duration
	k     *kernel.Handle
}

// OpenLocal opens the engine. Where somebody else keeps the node's objects up
// (an agent that is down at the moment), keepNode leaves them alone.
func (n *Node) OpenLocal(keepNode bool) (*Local, error) {
	l := &Local{}
	err := n.Do(func() (err error) {
		l.k, err = kernel.Open()
		return err
	})
	if err != nil {
		return nil, err
	}
	if l.Store, err = journal.Share(n.StateDir, facts.New); err != nil {
		l.k.Close()
		return nil, err
	}
	l.Engine = &engine.Engine{
		Store: l.Store, Kernel: l.k, Delegates: plugin.Delegates{}, Instance: n.StateDir,
		Now: func() time.Time { return time.Now().Add(l.ahead) },
	}
	if keepNode {
		l.Node = func() kernel.Node { return kernel.Node{} }
	}
	return l, nil
}

// Advance moves the engine's clock.
func (l *Local) Advance(d time.Duration) { l.ahead += d }

// Close closes journal and sockets.
func (l *Local) Close() error {
	l.k.Close()
	return l.Store.Close()
}

// Until polls until cond holds, for at most the limit, and reports whether it
// did.
func Until(limit time.Duration, cond func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			return cond()
		}
	}
	return true
}

// Limit bounds every wait for something that takes milliseconds on a machine
// with nothing else to do.
const Limit = 15 * time.Second

var errLimit = fmt.Errorf("not within %s", Limit)
