// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"net/netip"
	"strings"
)

// Protocol is a transport protocol with ports, by its IP protocol number.
type Protocol uint8

// Protocols of port mappings.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name in lower case.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	default:
		return fmt.Sprintf("protocol(%d)", uint8(p))
	}
}

// ParseProtocol is the inverse of String, whatever the case.
func ParseProtocol(s string) (Protocol, bool) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if strings.EqualFold(s, p.String()) {
			return p, true
		}
	}
	return 0, false
}

// MarshalText returns the name.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a name.
func (p *Protocol) UnmarshalText(b []byte) error {
	var ok bool
	if *p, ok = ParseProtocol(string(b)); !ok {
		return fmt.Errorf("protocol %q: want tcp, udp or sctp", b)
	}
	return nil
}

// Port is a port of the host that shall lead to the attachment.
type Port struct {
	Protocol Protocol `json:"protocol"`
	// HostIP is the only address of the host that the port is mapped on. 0.0.0.0
	// and :: stand for all addresses of the family, zero for those of both.
	HostIP        netip.Addr `json:"hostIP,omitzero"`
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
}

// String returns protocol, address and port: "tcp 192.0.2.1:80"; "*" stands for
// all addresses.
func (p Port) String() string {
	if !p.HostIP.IsValid() {
		return fmt.Sprintf("%s *:%d", p.Protocol, p.HostPort)
	}
	return fmt.Sprintf("%s %s", p.Protocol, netip.AddrPortFrom(p.HostIP, p.HostPort))
}

// Overlaps reports whether there is a packet that both ports want.
func (p Port) Overlaps(q Port) bool {
	if p.Protocol != q.Protocol || p.HostPort != q.HostPort {
		return false
	}
	if !p.HostIP.IsValid() || !q.HostIP.IsValid() {
		return true
	}
	if p.HostIP.Is4() != q.HostIP.Is4() {
		return false
	}
	return p.HostIP == q.HostIP || p.HostIP.IsUnspecified() || q.HostIP.IsUnspecified()
}

// Mapping is a Port in one family: what comes to Host goes to Pod. An
// unspecified address of Host stands for every address that is local to it.
type Mapping struct {
	Protocol  Protocol
	Host, Pod netip.AddrPort
}

// String returns "tcp 0.0.0.0:8080 to 10.42.0.5:80".
func (m Mapping) String() string { return fmt.Sprintf("%s %s to %s", m.Protocol, m.Host, m.Pod) }

// Loopback reports whether the host may use the mapping by way of 127.0.0.0/8.
func (m Mapping) Loopback() bool {
	a := m.Host.Addr()
	return a.Is4() && (a.IsUnspecified() || a.IsLoopback())
}

// Port returns what was asked for, as far as this family is concerned.
func (m Mapping) Port() Port {
	return Port{Protocol: m.Protocol, HostIP: m.Host.Addr(), HostPort: m.Host.Port(), ContainerPort: m.Pod.Port()}
}

// Mappings leads the ports to the first address of each family. It refuses a
// port that is listed twice, one whose HostIP is of a family that the
// attachment does not have, and ::1: the kernel takes no answer to it from
// another interface.
func Mappings(ports []Port, addrs []Address) ([]Mapping, error) {
	var mappings []Mapping
	for i, p := range ports {
		for _, q := range ports[:i] {
			if p.Overlaps(q) {
				return nil, fmt.Errorf("port %s: listed twice, to %d and to %d of the container", p, q.ContainerPort, p.ContainerPort)
			}
		}
		if p.HostIP == netip.IPv6Loopback() {
			return nil, fmt.Errorf("port %s: Linux does not forward what is sent to ::1; want another hostIP", p)
		}
		found := false
		for _, ipv6 := range []bool{false, true} {
			pod := firstOf(addrs, ipv6)
			if !pod.IsValid() || (p.HostIP.IsValid() && p.HostIP.Is6() != ipv6) {
				continue
			}
			host := p.HostIP
			if !host.IsValid() {
				host = unspecified(ipv6)
			}
			found = true
			mappings = append(mappings, Mapping{
				Protocol: p.Protocol,
				Host:     netip.AddrPortFrom(host, p.HostPort), Pod: netip.AddrPortFrom(pod, p.ContainerPort),
			})
		}
		if !found {
			return nil, fmt.Errorf("port %s: the attachment has no address of the family of hostIP; want one of another family, or none", p)
		}
	}
	return mappings, nil
}

func firstOf(addrs []Address, ipv6 bool) netip.Addr {
	for _, a := range addrs {
		if a.Addr.Is6() == ipv6 {
			return a.Addr
		}
	}
	return netip.Addr{}
}

func unspecified(ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
