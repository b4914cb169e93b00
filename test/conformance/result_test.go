// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Result is a success result of version 0.3.0 or newer.
type Result struct {
	CNIVersion string      `json:"cniVersion"`
	Interfaces []Interface `json:"interfaces"`
	IPs        []IP        `json:"ips"`
	Routes     []Route     `json:"routes"`
	DNS        DNS         `json:"dns"`
}

// Interface is one interface of a result; Sandbox is empty on the host.
type Interface struct {
	Name       string `json:"name"`
	Mac        string `json:"mac"`
	MTU        int    `json:"mtu"`
	Sandbox    string `json:"sandbox"`
	SocketPath string `json:"socketPath"`
	PciID      string `json:"pciID"`
}

// IP is one address of a result.
type IP struct {
	Version   string       `json:"version"`
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway"`
	Interface *int         `json:"interface"`
}

// Route is one route of a result.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	GW       netip.Addr   `json:"gw"`
	MTU      int          `json:"mtu"`
	AdvMSS   int          `json:"advmss"`
	Priority int          `json:"priority"`
	Table    *int         `json:"table"`
	Scope    *int         `json:"scope"`
}

// DNS is what a result says about name resolution.
type DNS struct {
	Nameservers []string `json:"nameservers"`
	Domain      string   `json:"domain"`
	Search      []string `json:"search"`
	Options     []string `json:"options"`
}

// Result expects a successful ADD and decodes its result.
func (c *C) Result(call *Call) Result {
	c.Added(call)
	var r Result
	if err := json.Unmarshal(call.Stdout, &r); err != nil {
		c.Fatalf("ADD: decode the result: %v: %s", err, oneLine(call.Stdout))
	}
	return r
}

// Addr expects a successful ADD and returns its first address.
func (c *C) Addr(call *Call) netip.Addr {
	r := c.Result(call)
	if len(r.IPs) == 0 {
		c.Fatalf("ADD: the result has no address: %s", oneLine(call.Stdout))
	}
	return r.IPs[0].Address.Addr()
}

// InSandbox returns the interface of a result that is inside the pod.
func (c *C) InSandbox(r Result) Interface {
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			return i
		}
	}
	c.Fatalf("the result lists no interface with a sandbox: %s", asJSON(r))
	return Interface{}
}

// shape says which keys an object of a result may and must have, and what
// shape the objects below them have.
type shape struct {
	required, optional []string
	below              map[string]shape
}

var dnsShape = shape{optional: []string{"nameservers", "domain", "search", "options"}}

// resultShape returns the exact shape of a success result of a version:
// sections "Result" of the specification as it was tagged at each version.
func resultShape(version string) shape {
	switch version {
	case "0.1.0", "0.2.0":
		route := shape{required: []string{"dst"}, optional: []string{"gw"}}
		ip := shape{required: []string{"ip"}, optional: []string{"gateway", "routes"}, below: map[string]shape{"routes": route}}
		return shape{
			required: []string{"cniVersion"}, optional: []string{"ip4", "ip6", "dns"},
			below: map[string]shape{"ip4": ip, "ip6": ip, "dns": dnsShape},
		}
	}
	iface := shape{required: []string{"name"}, optional: []string{"mac", "sandbox"}}
	ip := shape{required: []string{"address"}, optional: []string{"gateway", "interface"}}
	route := shape{required: []string{"dst"}, optional: []string{"gw"}}
	switch version {
	case "0.3.0", "0.3.1", "0.4.0":
		ip.required = append(ip.required, "version")
	case "1.1.0":
		iface.optional = append(iface.optional, "mtu", "socketPath", "pciID")
		route.optional = append(route.optional, "mtu", "advmss", "priority", "table", "scope")
	}
	return shape{
		required: []string{"cniVersion", "interfaces", "ips"}, optional: []string{"routes", "dns"},
		below: map[string]shape{"interfaces": iface, "ips": ip, "routes": route, "dns": dnsShape},
	}
}

// check returns every key that is missing or must not be there.
func (s shape) check(at string, raw json.RawMessage) []string {
	if len(raw) > 0 && raw[0] == '[' {
		return s.checkEach(at, raw)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return []string{fmt.Sprintf("%s: want an object: %v", at, err)}
	}
	var faults []string
	for _, key := range s.required {
		if _, ok := o[key]; !ok {
			faults = append(faults, fmt.Sprintf("%s: key %q is missing", at, key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(s.required, key) && !slices.Contains(s.optional, key) {
			faults = append(faults, fmt.Sprintf("%s: key %q does not exist in this version", at, key))
		}
		if below, ok := s.below[key]; ok {
			faults = append(faults, below.check(at+"."+key, o[key])...)
		}
	}
	return faults
}

func (s shape) checkEach(at string, raw json.RawMessage) []string {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return []string{fmt.Sprintf("%s: want an array: %v", at, err)}
	}
	var faults []string
	for i, item := range items {
		faults = append(faults, s.check(fmt.Sprintf("%s[%d]", at, i), item)...)
	}
	return faults
}

// Shaped expects a result to have exactly the shape of a version.
func (c *C) Shaped(call *Call, version string) {
	c.Added(call)
	for _, fault := range resultShape(version).check("result", call.Stdout) {
		c.Errorf("%s", fault)
	}
	var head struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(call.Stdout, &head); err != nil || head.CNIVersion != version {
		c.Errorf("result: cniVersion is %q, want that of the request, %q", head.CNIVersion, version)
	}
}
