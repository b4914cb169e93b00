// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// prefix is what the names of our annotations begin with.
const prefix = "weft.dev/"

// Parse reads what the annotations of a pod and of its namespace ask for. Those
// that do not begin with weft.dev/ are not looked at. The error is a
// *RefusedError that names every mistake.
func Parse(pod, namespace map[string]string) (Wish, error) {
	var p parser
	for _, name := range ours(namespace) {
		if name != Pool {
			p.mistake("namespace", name, namespace[name], "want %s only; the others are for pods", Pool)
			continue
		}
		p.w.Pool = p.pool("namespace", namespace[name])
	}
	for _, name := range ours(pod) {
		p.read(name, pod[name])
	}
	if p.w.MTU != 0 && p.w.MTU < attach.MinMTU6 && slices.ContainsFunc(p.w.Addresses, netip.Addr.Is6) {
		p.mistake("pod", MTU, pod[MTU], "want %d at least, because %s asks for an IPv6 address", attach.MinMTU6, IPv6)
	}
	if len(p.mistakes) > 0 {
		return Wish{}, &RefusedError{Reason: InvalidAnnotation, Msg: strings.Join(p.mistakes, "; ")}
	}
	return p.w, nil
}

// ours returns the names of our annotations, ascending: IPv4 is before IPv6.
func ours(annotations map[string]string) []string {
	names := slices.Sorted(maps.Keys(annotations))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

type parser struct {
	w        Wish
	mistakes []string
}

func (p *parser) mistake(of, name, value, format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Sprintf("annotation %s of the %s is %.80q: ", name, of, value)+fmt.Sprintf(format, args...))
}

// read takes in one annotation of the pod.
func (p *parser) read(name, value string) {
	switch name {
	case IPv4, IPv6:
		p.address(name, value)
	case Pool:
		p.w.Pool = p.pool("pod", value)
	case MAC:
		mac, ok := parseMAC(value)
		if !ok {
			p.mistake("pod", name, value, "want a unicast EUI-48 address such as 02:01:02:03:04:05")
		}
		p.w.MAC = mac
	case MTU:
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n < attach.MinMTU || n > attach.MaxMTU {
			p.mistake("pod", name, value, "want a number of bytes from %d to %d", attach.MinMTU, attach.MaxMTU)
			return
		}
		p.w.MTU = int(n)
	case Sticky:
		if value != "true" && value != "false" {
			p.mistake("pod", name, value, `want "true" or "false"`)
		}
		p.w.Sticky = value == "true"
	default:
		p.mistake("pod", name, value, "there is no such annotation; there are %s",
			strings.Join([]string{IPv4, IPv6, Pool, MAC, MTU, Sticky}, ", "))
	}
}

func (p *parser) address(name, value string) {
	a, err := netip.ParseAddr(value)
	switch {
	case name == IPv4 && (err != nil || !a.Is4()):
		p.mistake("pod", name, value, "want an IPv4 address such as 10.42.3.7")
	case name == IPv6 && (err != nil || !a.Is6()):
		p.mistake("pod", name, value, "want an IPv6 address such as fd00:42::7")
	default:
		if err := cluster.UsableAddress(a); err != nil {
			p.mistake("pod", name, value, "no pod can have an address that %v", err)
			return
		}
		p.w.Addresses = append(p.w.Addresses, a)
	}
}

// pool reads the name of an object, as Kubernetes has them (RFC 1123).
func (p *parser) pool(of, value string) string {
	strange := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' }
	if value == "" || len(value) > 253 || strings.ContainsFunc(value, strange) {
		p.mistake(of, Pool, value, "want the name of an IPPool")
		return ""
	}
	return value
}

// parseMAC reads six octets separated by colons. A group address or the zero
// address cannot be that of an interface.
func parseMAC(value string) (mac attach.MAC, ok bool) {
	octets := strings.Split(value, ":")
	if len(octets) != len(mac) {
		return attach.MAC{}, false
	}
	for i, octet := range octets {
		b, err := strconv.ParseUint(octet, 16, 8)
		if err != nil || len(octet) != 2 {
			return attach.MAC{}, false
		}
		mac[i] = byte(b)
	}
	if mac.IsZero() || mac[0]&0x01 != 0 {
		return attach.MAC{}, false
	}
	return mac, true
}
