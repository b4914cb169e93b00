// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"

	"weft.dev/weft/internal/core/attach"
)

// wireResult holds the keys of all versions; no key has two meanings. The
// order of the fields is that of the output.
type wireResult struct {
	CNIVersion string          `json:"cniVersion"`
	IP4        *wireFamily     `json:"ip4,omitempty"` // 0.1.0 and 0.2.0
	IP6        *wireFamily     `json:"ip6,omitempty"` // 0.1.0 and 0.2.0
	Interfaces []wireInterface `json:"interfaces,omitempty"`
	IPs        []wireIP        `json:"ips,omitempty"`
	Routes     []wireRoute     `json:"routes,omitempty"`
	DNS        DNS             `json:"dns,omitzero"`
}

type wireFamily struct {
	IP      string      `json:"ip"`
	Gateway string      `json:"gateway,omitempty"`
	Routes  []wireRoute `json:"routes,omitempty"`
}

type wireInterface struct {
	Name       string `json:"name"`
	MAC        string `json:"mac,omitempty"`
	MTU        int    `json:"mtu,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
	SocketPath string `json:"socketPath,omitempty"`
	PciID      string `json:"pciID,omitempty"`
}

type wireIP struct {
	Version   string `json:"version,omitempty"` // 0.3.0 to 0.4.0: "4" or "6"
	Interface *int   `json:"interface,omitempty"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway,omitempty"`
}

// Encode returns the result as one line of JSON in the shape of version, which
// must be that of the request. What the version has no place for is left out:
// before 1.1.0 MTU, socket and PCI device of interfaces and all of a route but
// destination and gateway; before 0.3.0 also interfaces, all but the first
// address of each family, and the routes of a family without address.
//
// It is an error (CodeVersion) to ask for a version that is not supported, and
// (CodeInternal) to encode an address or a route without a valid prefix.
func (r Result) Encode(version string) ([]byte, error) {
	if err := checkSupported("result version", version); err != nil {
		return nil, err
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	wire := wireResult{CNIVersion: version, DNS: r.DNS}
	if AtLeast(version, listVersion) {
		wire.addLists(r, version)
	} else {
		wire.addFamilies(r)
	}
	out, err := json.Marshal(wire)
	if err != nil {
		return nil, Errorf(CodeInternal, "encode result: %w", err)
	}
	return out, nil
}

func (r Result) validate() *Error {
	for i, ip := range r.IPs {
		if !ip.Address.IsValid() {
			return Errorf(CodeInternal, "encode result: %s has no valid address", index("ips", i))
		}
		if n := ip.Interface; n != nil && (*n < 0 || *n >= len(r.Interfaces)) {
			return Errorf(CodeInternal, "encode result: %s: interface %d: the result has %d interfaces", index("ips", i), *n, len(r.Interfaces))
		}
	}
	for i, route := range r.Routes {
		if !route.Dst.IsValid() {
			return Errorf(CodeInternal, "encode result: %s has no valid destination", index("routes", i))
		}
	}
	return nil
}

// addLists writes the shape of 0.3.0 and later.
func (w *wireResult) addLists(r Result, version string) {
	extended := AtLeast(version, gcVersion)
	for _, i := range r.Interfaces {
		if !extended {
			i = Interface{Name: i.Name, MAC: i.MAC, Sandbox: i.Sandbox}
		}
		w.Interfaces = append(w.Interfaces, wireInterface(i))
	}
	for _, ip := range r.IPs {
		out := wireIP{Interface: ip.Interface, Address: ip.Address.String()}
		if ip.Gateway.IsValid() {
			out.Gateway = ip.Gateway.String()
		}
		if !AtLeast(version, plainVersion) {
			out.Version = familyDigit(ip)
		}
		w.IPs = append(w.IPs, out)
	}
	for _, route := range r.Routes {
		w.Routes = append(w.Routes, encodeRoute(route, extended))
	}
}

// addFamilies writes the shape of 0.1.0 and 0.2.0.
func (w *wireResult) addFamilies(r Result) {
	for _, ip := range r.IPs {
		family := &w.IP6
		if ip.Address.Addr().Is4() {
			family = &w.IP4
		}
		if *family != nil {
			continue
		}
		*family = &wireFamily{IP: ip.Address.String()}
		if ip.Gateway.IsValid() {
			(*family).Gateway = ip.Gateway.String()
		}
	}
	for _, route := range r.Routes {
		family := w.IP6
		if route.Dst.Addr().Is4() {
			family = w.IP4
		}
		if family != nil {
			family.Routes = append(family.Routes, encodeRoute(route, false))
		}
	}
}

func familyDigit(ip IP) string {
	if ip.Address.Addr().Is4() {
		return "4"
	}
	return "6"
}

func encodeRoute(r attach.Route, extended bool) wireRoute {
	w := wireRoute{Dst: r.Dst.String()}
	if r.Gateway.IsValid() {
		w.GW = r.Gateway.String()
	}
	if extended {
		w.MTU, w.AdvMSS, w.Priority, w.Table, w.Scope = r.MTU, r.AdvMSS, r.Priority, r.Table, r.Scope
	}
	return w
}
