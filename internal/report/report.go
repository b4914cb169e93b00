// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Questions that an agent answers, in wire.Request.Query.
const (
	// Status asks for a Report without nodes, leases and routes, whose number
	// depends on the cluster.
	Status = "status"
	// Sync asks for the same, once the kernel has what the registry has told,
	// or when the deadline is near.
	Sync = "sync"
	// Everything asks for the whole Report.
	Everything = "report"
)

// Report is an agent's answer. Every list is in a fixed order.
type Report struct {
	Subsystems []Subsystem `json:"subsystems"`
	Rejected   []Rejection `json:"rejected,omitempty"`
	Nodes      []Node      `json:"nodes,omitempty"`
	Leases     []Lease     `json:"leases,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
}

// Rejection says that an object is not used, and why.
type Rejection struct {
	Object string `json:"object"` // kind and name, or the place where it was found
	Reason string `json:"reason"`
}

// Node is a node of the cluster as another node sees it.
type Node struct {
	Name      string         `json:"name"`
	Addresses []netip.Addr   `json:"addresses,omitempty"` // on the underlay
	Subnets   []netip.Prefix `json:"subnets,omitempty"`   // of its leases
	Way       string         `json:"way,omitempty"`       // self, native, vxlan, unreachable, mixed; "": it has no subnet
	Devices   []string       `json:"devices,omitempty"`   // of this node, that lead there
	VTEP      string         `json:"vtep,omitempty"`      // its end of VXLAN tunnels
	State     string         `json:"state"`               // ok, or what is wrong
}

// Header implements view.Row.
func (Node) Header() []string {
	return []string{"NAME", "ADDRESSES", "SUBNETS", "WAY", "DEVICES", "VTEP", "STATE"}
}

// Cells implements view.Row.
func (n Node) Cells() []string {
	return []string{n.Name, joined(n.Addresses), joined(n.Subnets), n.Way, strings.Join(n.Devices, ","), n.VTEP, oneLine(n.State)}
}

// Lease is a block that a node holds.
type Lease struct {
	Name    string       `json:"name"`
	Subnet  netip.Prefix `json:"subnet"`
	Pool    string       `json:"pool,omitempty"` // "": one of the node's pod CIDRs
	Node    string       `json:"node"`
	Way     string       `json:"way,omitempty"` // local, native, vxlan, unreachable; "": not decided yet
	Created time.Time    `json:"created,omitzero"`
	Age     string       `json:"age,omitempty"` // when the report was made
	Use     *Use         `json:"use,omitempty"` // of the agent's own node only
	State   string       `json:"state"`         // in use here, ok, or what is wrong
}

// Use is how full a block is.
type Use struct {
	Size uint64 `json:"size"` // addresses that pods can get; saturated
	Free uint64 `json:"free"` // of them, neither in use nor cooling down; saturated
}

// String returns "free of size".
func (u *Use) String() string {
	if u == nil {
		return ""
	}
	return Count(u.Free) + " of " + Count(u.Size)
}

// Count writes a number of addresses; the largest stands for that or more.
func Count(n uint64) string {
	if n > 1<<40 {
		return "plenty"
	}
	return fmt.Sprint(n)
}

// Header implements view.Row.
func (Lease) Header() []string {
	return []string{"NAME", "SUBNET", "POOL", "NODE", "WAY", "AGE", "FREE", "STATE"}
}

// Cells implements view.Row.
func (l Lease) Cells() []string {
	return []string{l.Name, l.Subnet.String(), l.Pool, l.Node, l.Way, l.Age, l.Use.String(), oneLine(l.State)}
}

// Route is a route of the node that Weft wants.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Dev         string       `json:"dev,omitempty"`
	Kind        string       `json:"kind"`   // pod, native, vxlan, local, unreachable, last resort
	State       string       `json:"state"`  // in sync, pending, or what fails
	Origin      string       `json:"origin"` // the object that asks for it
}

// Header implements view.Row.
func (Route) Header() []string {
	return []string{"DESTINATION", "GATEWAY", "DEV", "KIND", "STATE", "ORIGIN"}
}

// Cells implements view.Row.
func (r Route) Cells() []string {
	gateway := ""
	if r.Gateway.IsValid() {
		gateway = r.Gateway.String()
	}
	return []string{r.Destination.String(), gateway, r.Dev, r.Kind, oneLine(r.State), r.Origin}
}

func joined[T fmt.Stringer](list []T) string {
	parts := make([]string, 0, len(list))
	for _, v := range list {
		parts = append(parts, v.String())
	}
	return strings.Join(parts, ",")
}

// oneLine makes one line of the words of several errors.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
