// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"weft.dev/weft/internal/core/attach"
)

// ParseResult reads a result of any supported version: a prevResult or the
// answer of a delegated plugin. defaultVersion is that of the request and holds
// where the result names none. Fields newer than the result's version are kept:
// plugins built on the reference library send them.
//
// The error is an *Error: CodeVersion, or CodeDecode with the path of the
// offending value.
func ParseResult(raw []byte, defaultVersion string) (Result, error) {
	r, err := parseResult("result", raw, defaultVersion)
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// parseResult is ParseResult with the document's name for messages.
func parseResult(what string, raw []byte, defaultVersion string) (Result, *Error) {
	var wire wireResult
	if err := decode(what, what+".", raw, &wire); err != nil {
		return Result{}, err
	}
	version := wire.CNIVersion
	if version == "" {
		version = versionOrOldest(defaultVersion)
	}
	if err := checkSupported(what+".cniVersion", version); err != nil {
		return Result{}, err
	}
	var r Result
	var err *Error
	if AtLeast(version, listVersion) {
		err = r.addLists(&wire)
	} else {
		err = r.addFamilies(&wire)
	}
	if err != nil {
		return Result{}, Errorf(CodeDecode, "decode %s: %w", what, err)
	}
	r.DNS = wire.DNS
	return r, nil
}

// addLists reads the shape of 0.3.0 and later.
func (r *Result) addLists(wire *wireResult) *Error {
	for _, i := range wire.Interfaces {
		r.Interfaces = append(r.Interfaces, Interface(i))
	}
	for i, w := range wire.IPs {
		ip, err := parseIP(index("ips", i)+".address", w.Address, index("ips", i)+".gateway", w.Gateway)
		if err != nil {
			return err
		}
		if ip.Interface, err = checkIndex(index("ips", i)+".interface", w.Interface, len(r.Interfaces)); err != nil {
			return err
		}
		r.IPs = append(r.IPs, ip)
	}
	return r.addRoutes("routes", wire.Routes)
}

// checkIndex refuses an index that points nowhere. An IPAM plugin's answer has
// no interfaces, but some plugins set the index nevertheless; it says nothing.
func checkIndex(key string, n *int, interfaces int) (*int, *Error) {
	if n == nil || interfaces == 0 {
		return nil, nil
	}
	if *n < 0 || *n >= interfaces {
		return nil, Errorf(CodeDecode, "%s %d: the result has %d interfaces", key, *n, interfaces)
	}
	return n, nil
}

// addFamilies reads the shape of 0.1.0 and 0.2.0.
func (r *Result) addFamilies(wire *wireResult) *Error {
	for _, f := range []struct {
		key    string
		family *wireFamily
	}{{"ip4", wire.IP4}, {"ip6", wire.IP6}} {
		if f.family == nil {
			continue
		}
		ip, err := parseIP(f.key+".ip", f.family.IP, f.key+".gateway", f.family.Gateway)
		if err != nil {
			return err
		}
		r.IPs = append(r.IPs, ip)
		if err := r.addRoutes(f.key+".routes", f.family.Routes); err != nil {
			return err
		}
	}
	return nil
}

func (r *Result) addRoutes(key string, routes []wireRoute) *Error {
	for i, w := range routes {
		route, err := parseRoute(index(key, i), w)
		if err != nil {
			return err
		}
		r.Routes = append(r.Routes, route)
	}
	return nil
}

func parseIP(addressKey, address, gatewayKey, gateway string) (ip IP, err *Error) {
	if ip.Address, err = parsePrefix(addressKey, address); err != nil {
		return IP{}, err
	}
	ip.Gateway, err = parseAddrOrNone(gatewayKey, gateway)
	return ip, err
}

// parseRoute reads a route; numbers are taken as they are.
func parseRoute(key string, w wireRoute) (r attach.Route, err *Error) {
	if r.Dst, err = parsePrefix(key+".dst", w.Dst); err != nil {
		return attach.Route{}, err
	}
	if r.Gateway, err = parseAddrOrNone(key+".gw", w.GW); err != nil {
		return attach.Route{}, err
	}
	r.MTU, r.AdvMSS, r.Priority, r.Table, r.Scope = w.MTU, w.AdvMSS, w.Priority, w.Table, w.Scope
	return r, nil
}
