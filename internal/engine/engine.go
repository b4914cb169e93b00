// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/kernel"
)

// Store keeps the facts. Package journal implements it twice: owned by the
// agent, and shared by short-lived processes.
type Store interface {
	View(ctx context.Context, read func(*facts.Facts) error) error
	Update(ctx context.Context, change func(*facts.Facts) ([]string, error)) error
	LockKey(ctx context.Context, key string) (unlock func(), err error)
}

// Kernel makes plans real. Package kernel implements it; tests wrap it to
// inject failures.
type Kernel interface {
	Attach(ns *kernel.Netns, p attach.Plan) error
	Detach(hostIfname string) error
	DetachAll(hostIfnames []string) error
	Compare(ns *kernel.Netns, p attach.Plan, opts ...kernel.CompareOptions) ([]kernel.Difference, error)
	LinkExists(name string) (bool, error)
	LinkExistsIn(ns *kernel.Netns, name string) (bool, error)
	Owned() ([]kernel.Owned, error)
	UplinkMTU() (int, error)
	EnsureNode(n kernel.Node) error
	CompareNode(n kernel.Node) ([]kernel.Difference, error)
	RemoveNode(n kernel.Node) error
	Mend(p attach.Plan) (mended int, err error)
	ForgetPorts(ports []attach.Mapping) error
	RemoveOrphans() ([]kernel.Orphan, error)
	SetPodMTU(ns *kernel.Netns, ifname, hostIfname string, mtu int) error
}

// Delegates executes IPAM plugins of others.
type Delegates interface {
	Release(ctx context.Context, k attach.Key, d facts.Delegate) error
}

// Engine carries attachments through their life. All fields but Reaper are
// required; methods may be called concurrently.
type Engine struct {
	Store     Store
	Kernel    Kernel
	Delegates Delegates
	Instance  string // absolute state directory; part of our mark on every interface
	Now       func() time.Time

	// Reaper, where set, removes interfaces after DEL has returned, many for
	// the price of one; it leaves the node's objects alone, so Node must be set
	// too. Nil: DEL removes its interface itself.
	Reaper *Reaper

	// Node, where set, returns what the node itself needs (gateway routes,
	// masquerading), which belongs to somebody who keeps it up: the agent. Nil:
	// ADD ensures it for its own network, and the DEL of the network's last
	// attachment removes it.
	Node func() kernel.Node
}

// Network is what an attachment needs to know of its network. The agent also
// records it as JSON, for the shim that serves calls while it is down.
type Network struct {
	Name       string         `json:"name,omitempty"`
	Pool       ipam.Pool      `json:"pool"`
	Routes     []attach.Route `json:"routes,omitempty"`
	MTU        int            `json:"mtu,omitempty"` // bytes; 0: the uplink's
	Masquerade bool           `json:"masquerade,omitempty"`
	Cooldown   time.Duration  `json:"cooldown"` // nanoseconds

	// Cluster names the registry that Pool comes from: Kubernetes, or a directory;
	// "": Pool is configured.
	Cluster string `json:"cluster,omitempty"`
	// Direct are further destinations that see a pod's own address, besides
	// Pool; Plain are the parts of Pool that are never masqueraded.
	Direct []netip.Prefix `json:"direct,omitempty"`
	Plain  []netip.Prefix `json:"plain,omitempty"`
	// OnRequest are subnets of Pool that only those get who ask for them.
	OnRequest []netip.Prefix `json:"onRequest,omitempty"`

	// Avoid, where set, reports addresses that somebody else holds.
	Avoid func(netip.Addr) bool `json:"-"`
}

// For returns the network under the name that the runtime gives it, with the
// MTU of the call where that has one.
func (n Network) For(name string, mtu int) Network {
	n.Name = name
	if mtu != 0 {
		n.MTU = mtu
	}
	return n
}

// RecordedNetwork returns the network that an agent recorded last; the zero
// Network where none did.
func RecordedNetwork(f *facts.Facts) (n Network, err error) {
	if f.Config() == "" {
		return n, nil
	}
	if err := json.Unmarshal([]byte(f.Config()), &n); err != nil {
		return n, fmt.Errorf("decode the network that the agent recorded: %w", err)
	}
	return n, nil
}

// Kubernetes is the Cluster of a Network whose registry is the Kubernetes API:
// there pods ask for addresses and keep them, which the registry alone knows.
const Kubernetes = "kubernetes"

// Granted is what IPAM gave for one attachment.
type Granted struct {
	Addresses []attach.Address
	Routes    []attach.Route
}

// ErrNotRecorded is returned for an attachment that the journal does not know.
var ErrNotRecorded = errors.New("attachment is not recorded")

// AttachedError refuses an ADD for an attachment that is already complete.
type AttachedError struct {
	Record facts.Record
}

func (e *AttachedError) Error() string {
	return fmt.Sprintf("attachment %s exists already, with %v, since %s: DEL it first",
		e.Record.Key, e.Record.Addresses, time.Unix(0, e.Record.Created).UTC().Format(time.RFC3339))
}

func (e *Engine) now() int64 { return e.Now().UnixNano() }

// lookup reads one record.
func (e *Engine) lookup(ctx context.Context, k attach.Key) (rec facts.Record, found bool, err error) {
	err = e.Store.View(ctx, func(f *facts.Facts) error {
		rec, found = f.Get(k)
		return nil
	})
	return rec, found, err
}

// append1 writes one entry that does not depend on the facts.
func (e *Engine) append1(ctx context.Context, entry string, err error) error {
	if err != nil {
		return err
	}
	return e.Store.Update(ctx, func(*facts.Facts) ([]string, error) { return []string{entry}, nil })
}
