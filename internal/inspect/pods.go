// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
)

// Attachment is one attachment or reservation.
type Attachment struct {
	Pod         string       `json:"pod,omitempty"` // namespace/name
	Network     string       `json:"network"`
	Ifname      string       `json:"ifname"`
	Addresses   []netip.Addr `json:"addresses"`
	Phase       facts.Phase  `json:"phase"`
	Kind        facts.Kind   `json:"kind"`
	HostIfname  string       `json:"hostIfname,omitempty"`
	Created     time.Time    `json:"created"`
	SuspectFrom *time.Time   `json:"suspectSince,omitempty"` // when its sandbox was first seen dead
	Adopted     bool         `json:"adopted,omitempty"`
	ContainerID string       `json:"containerID"`
	Netns       string       `json:"netns,omitempty"`
	Age         string       `json:"-"`
}

// Header implements view.Row.
func (Attachment) Header() []string {
	return []string{"POD", "NETWORK", "IFNAME", "ADDRESSES", "PHASE", "HOST-INTERFACE", "AGE", "CONTAINER"}
}

// Cells implements view.Row.
func (a Attachment) Cells() []string {
	phase := a.Phase.String()
	if a.SuspectFrom != nil {
		phase += ",suspect"
	}
	return []string{a.Pod, a.Network, a.Ifname, joined(a.Addresses), phase, a.HostIfname, a.Age, shortID(a.ContainerID)}
}

// Attachments returns all attachments and reservations in the order of their
// keys.
func Attachments(f *facts.Facts, now time.Time) ([]Attachment, error) {
	var rows []Attachment
	for _, rec := range f.Records() {
		row, err := attachmentOf(rec, now)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func attachmentOf(rec facts.Record, now time.Time) (Attachment, error) {
	d, err := rec.Detail()
	if err != nil {
		return Attachment{}, err
	}
	created := time.Unix(0, rec.Created)
	a := Attachment{
		Pod: d.Pod.String(), Network: rec.Key.Network, Ifname: rec.Key.Ifname, Addresses: rec.Addresses,
		Phase: rec.Phase, Kind: rec.Kind, Created: created.UTC(), Adopted: d.Adopted,
		ContainerID: rec.Key.ContainerID, Netns: d.Netns, Age: now.Sub(created).Truncate(time.Second).String(),
	}
	if rec.Kind == facts.Veth {
		a.HostIfname = rec.Key.HostIfname()
	}
	if rec.Suspect != 0 {
		at := time.Unix(0, rec.Suspect).UTC()
		a.SuspectFrom = &at
	}
	return a, nil
}

// Find returns the records that a person means by a word: a pod as
// namespace/name or name, an address, a container id or the beginning of one
// (at least 4 characters), or a key.
func Find(f *facts.Facts, word string) ([]facts.Record, error) {
	var found []facts.Record
	for _, rec := range f.Records() {
		d, err := rec.Detail()
		if err != nil {
			return nil, err
		}
		if matches(rec, d, word) {
			found = append(found, rec)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("nothing is recorded for %q: want a pod (namespace/name), an address, a container id or network/container/interface; see weft pod list", word)
	}
	return found, nil
}

func matches(rec facts.Record, d facts.Detail, word string) bool {
	if word == "" {
		return false
	}
	if word == d.Pod.String() || word == d.Pod.Name || word == rec.Key.String() {
		return true
	}
	if len(word) >= 4 && strings.HasPrefix(rec.Key.ContainerID, word) {
		return true
	}
	for _, a := range rec.Addresses {
		if a.String() == word {
			return true
		}
	}
	return word == rec.Key.ContainerID
}

// Object is one kernel object of an attachment, and why it is there.
type Object struct {
	Where  string `json:"where"` // host, sandbox
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// Header implements view.Row.
func (Object) Header() []string { return []string{"WHERE", "OBJECT", "REASON"} }

// Cells implements view.Row.
func (o Object) Cells() []string { return []string{o.Where, o.Object, o.Reason} }

// Objects lists every kernel object that a record asks for, with the part of
// the request that asks for it.
func Objects(rec facts.Record, instance string) ([]Object, error) {
	d, err := rec.Detail()
	if err != nil || rec.Kind != facts.Veth {
		return nil, err
	}
	p, err := attach.NewPlan(d.Spec(rec.Key, instance))
	if err != nil {
		return nil, err
	}
	rows := []Object{
		{"host", fmt.Sprintf("interface %s %s mtu %d", p.HostIfname, p.HostMAC, p.MTU), "attachment " + rec.Key.String()},
		{"sandbox", fmt.Sprintf("interface %s %s mtu %d", p.Ifname, p.MAC, p.MTU), "CNI_IFNAME"},
	}
	for _, a := range p.Addresses {
		reason := "granted from " + subnetOf(d, a.Addr())
		if a.Addr().IsLinkLocalUnicast() {
			reason = "IPv6 on " + p.Ifname
		}
		rows = append(rows, Object{"sandbox", "address " + a.String(), reason})
	}
	for i, r := range p.Routes {
		reason := "configured routes"
		if i >= len(d.Routes) {
			reason = "neighbours in the subnet"
		}
		rows = append(rows, Object{"sandbox", "route " + r.Dst.String() + via(r.Gateway), reason})
	}
	for _, n := range p.Neighbours {
		rows = append(rows, Object{"sandbox", "neighbour " + n.Addr.String() + " is " + n.MAC.String(), "gateway"})
	}
	for _, r := range p.HostRoutes {
		rows = append(rows, Object{"host", "route " + r.String() + " dev " + p.HostIfname, "address of the pod"})
	}
	for _, n := range p.HostNeighbours {
		rows = append(rows, Object{"host", "neighbour " + n.Addr.String() + " is " + n.MAC.String(), "address of the pod"})
	}
	for _, s := range p.Sysctls {
		rows = append(rows, Object{"sandbox", "sysctl " + s.Key + "=" + s.Value, "configured sysctl"})
	}
	return rows, nil
}

func subnetOf(d facts.Detail, a netip.Addr) string {
	for _, ad := range d.Addresses {
		if ad.Addr == a && ad.Subnet.IsValid() {
			return ad.Subnet.String()
		}
	}
	return "a subnet that is not known"
}

func via(gw netip.Addr) string {
	if !gw.IsValid() {
		return ""
	}
	return " via " + gw.String()
}

func joined(addrs []netip.Addr) string {
	parts := make([]string, 0, len(addrs))
	for _, a := range addrs {
		parts = append(parts, a.String())
	}
	return strings.Join(parts, ",")
}

func shortID(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// Detail is an attachment with all its kernel objects.
type Detail struct {
	Attachment
	Objects []Object `json:"objects"`
}

// Details returns every record that word means, with its kernel objects.
func Details(f *facts.Facts, instance, word string, now time.Time) ([]Detail, error) {
	records, err := Find(f, word)
	if err != nil {
		return nil, err
	}
	var details []Detail
	for _, rec := range records {
		a, err := attachmentOf(rec, now)
		if err != nil {
			return nil, err
		}
		objects, err := Objects(rec, instance)
		if err != nil {
			return nil, err
		}
		details = append(details, Detail{Attachment: a, Objects: objects})
	}
	return details, nil
}
