// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/core/attach"
)

func drawAddr(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "v4") {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr4")))
	}
	// An IPv4-mapped address would come back as IPv4.
	return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr16"))).Unmap()
}

func drawPrefix(t *rapid.T) netip.Prefix {
	addr := drawAddr(t)
	return netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits"))
}

func drawOptional(t *rapid.T, max int) *int {
	if rapid.Bool().Draw(t, "is there") {
		return new(rapid.IntRange(0, max).Draw(t, "n"))
	}
	return nil
}

func drawGateway(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "gateway") {
		return drawAddr(t)
	}
	return netip.Addr{}
}

func drawResult(t *rapid.T) Result {
	text, number := rapid.String(), rapid.IntRange(0, 1<<31)
	var r Result
	for range rapid.IntRange(0, 3).Draw(t, "interfaces") {
		r.Interfaces = append(r.Interfaces, Interface{
			Name: text.Draw(t, "name"), MAC: text.Draw(t, "mac"), MTU: number.Draw(t, "mtu"),
			Sandbox: text.Draw(t, "sandbox"), SocketPath: text.Draw(t, "socket"), PciID: text.Draw(t, "pci"),
		})
	}
	for range rapid.IntRange(0, 4).Draw(t, "ips") {
		ip := IP{Address: drawPrefix(t), Gateway: drawGateway(t)}
		if n := len(r.Interfaces); n > 0 {
			ip.Interface = drawOptional(t, n-1)
		}
		r.IPs = append(r.IPs, ip)
	}
	for range rapid.IntRange(0, 4).Draw(t, "routes") {
		r.Routes = append(r.Routes, attach.Route{
			Dst: drawPrefix(t), Gateway: drawGateway(t), MTU: number.Draw(t, "mtu"), AdvMSS: number.Draw(t, "advmss"),
			Priority: number.Draw(t, "priority"), Table: drawOptional(t, 1<<31), Scope: drawOptional(t, 255),
		})
	}
	list := rapid.SliceOfN(text, 0, 2)
	r.DNS = DNS{Nameservers: list.Draw(t, "servers"), Domain: text.Draw(t, "domain"), Search: list.Draw(t, "search"), Options: list.Draw(t, "options")}
	return r
}

// What a version can hold survives it, for us and for the reference library.
func TestResultRoundTrip(t *testing.T) {
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := drawResult(t)
				encoded, err := r.Encode(version)
				if err != nil {
					t.Fatal(err)
				}
				back, err := ParseResult(encoded, "9.9.9")
				if err != nil {
					t.Fatalf("%s: %v", encoded, err)
				}
				if diff := same(within(r, version), back); diff != "" {
					t.Fatalf("%s\n-want +got:\n%s", encoded, diff)
				}
				again, err := back.Encode(version)
				if err != nil || !bytes.Equal(encoded, again) {
					t.Fatalf("encoded twice:\n%s\n%s\n%v", encoded, again, err)
				}
				checkByReference(t, encoded, version)
			})
		})
	}
}

// Appending keeps all of both, and each address its interface.
func TestAppendLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, ours := drawResult(t), drawResult(t)
		all := ours.Append(before)
		n := len(before.Interfaces)
		if diff := same(before.Interfaces, all.Interfaces[:n]) + same(ours.Interfaces, all.Interfaces[n:]); diff != "" {
			t.Fatal(diff)
		}
		for i, ip := range all.IPs {
			source, from := before, i
			if i >= len(before.IPs) {
				source, from = ours, i-len(before.IPs)
			}
			was := source.IPs[from]
			if ip.Address != was.Address || ip.Gateway != was.Gateway || (ip.Interface == nil) != (was.Interface == nil) {
				t.Fatalf("ips[%d] is %+v; it was %+v", i, ip, was)
			}
			if ip.Interface != nil && all.Interfaces[*ip.Interface] != source.Interfaces[*was.Interface] {
				t.Fatalf("ips[%d] changed its interface", i)
			}
		}
		if len(all.IPs) != len(before.IPs)+len(ours.IPs) || len(all.Routes) != len(before.Routes)+len(ours.Routes) {
			t.Fatal("an address or a route is lost")
		}
		if _, err := all.Encode("1.1.0"); err != nil {
			t.Fatal(err)
		}
		if diff := same(before, Result{}.Append(before)) + same(ours.IPs, ours.Append(Result{}).IPs); diff != "" {
			t.Fatalf("appending to or of nothing: %s", diff)
		}
	})
}
