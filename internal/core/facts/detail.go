// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/attach"
)

// Detail is the part of a record that replay does not need: everything to
// rebuild the attachment's Spec, and what DEL, CHECK and garbage collection
// must know when the configuration that made it is gone.
type Detail struct {
	Pod       attach.Pod       `json:"pod,omitzero"`
	Netns     string           `json:"netns,omitempty"`  // path as the runtime gave it
	NetnsID   NetnsID          `json:"netnsID,omitzero"` // which namespace the path led to
	MAC       attach.MAC       `json:"-"`                // zero: derived from the key; text in JSON
	MTU       int              `json:"mtu,omitempty"`    // bytes
	Addresses []attach.Address `json:"addresses,omitempty"`
	Routes    []attach.Route   `json:"routes,omitempty"`
	Sysctls   []attach.Sysctl  `json:"sysctls,omitempty"`
	Rank      int              `json:"rank,omitempty"`
	Ports     []attach.Port    `json:"ports,omitempty"`
	Limits    attach.Limits    `json:"limits,omitzero"`

	// Pool lists the subnets of the network at the time of ADD, which is what
	// the node's objects of a network that no agent looks after depend on.
	Pool       []netip.Prefix `json:"pool,omitempty"`
	Masquerade bool           `json:"masquerade,omitempty"` // traffic that leaves Pool is masqueraded
	Delegate   *Delegate      `json:"delegate,omitempty"`   // nil: Weft granted the addresses itself
	Adopted    bool           `json:"adopted,omitempty"`    // rebuilt from what was found in the kernel, not from an ADD

	// Answer is the part of the CNI result that does not follow from the rest:
	// dns and prevResult, in the words of package plugin. nil: nothing.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// NewDetail returns the detail that Spec rebuilds s from. Key and Instance are
// not part of it.
func NewDetail(s attach.Spec) Detail {
	return Detail{
		Pod: s.Pod, MAC: s.MAC, MTU: s.MTU,
		Addresses: s.Addresses, Routes: s.Routes, Sysctls: s.Sysctls, Rank: s.Rank,
		Ports: s.Ports, Limits: s.Limits,
	}
}

// Spec returns what was wanted of the attachment.
func (d Detail) Spec(k attach.Key, instance string) attach.Spec {
	return attach.Spec{
		Key: k, Instance: instance, Pod: d.Pod, MAC: d.MAC, MTU: d.MTU,
		Addresses: d.Addresses, Routes: d.Routes, Sysctls: d.Sysctls, Rank: d.Rank,
		Ports: d.Ports, Limits: d.Limits,
	}
}

// plainDetail has the fields of Detail without its methods; detailJSON adds
// the MAC in the form that people read.
type plainDetail Detail

type detailJSON struct {
	plainDetail
	MAC string `json:"mac,omitempty"`
}

// MarshalJSON writes the MAC in its colon form.
func (d Detail) MarshalJSON() ([]byte, error) {
	j := detailJSON{plainDetail: plainDetail(d)}
	if !d.MAC.IsZero() {
		j.MAC = d.MAC.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON is the inverse of MarshalJSON. It ignores fields it does not
// know: a newer Weft may have written them.
func (d *Detail) UnmarshalJSON(b []byte) error {
	var j detailJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	mac, err := parseMAC(j.MAC)
	if err != nil {
		return err
	}
	*d = Detail(j.plainDetail)
	d.MAC = mac
	return nil
}

// parseMAC reads the form that attach.MAC.String writes; "" is the zero MAC.
func parseMAC(s string) (attach.MAC, error) {
	var mac attach.MAC
	if s == "" {
		return mac, nil
	}
	if len(s) != 17 {
		return attach.MAC{}, fmt.Errorf("mac %q: want six octets in hexadecimal, separated by colons", s)
	}
	for i := range mac {
		n, err := hex.Decode(mac[i:i+1], []byte(s[3*i:3*i+2]))
		if err != nil || n != 1 || (i < 5 && s[3*i+2] != ':') {
			return attach.MAC{}, fmt.Errorf("mac %q: want six octets in hexadecimal, separated by colons", s)
		}
	}
	return mac, nil
}
