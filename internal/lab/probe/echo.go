// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// echoKind is the type of an ICMP message in each family.
type echoKind struct{ v4, v6 byte }

// The two messages of the echo exchange: RFC 792 and RFC 4443, section 4.
var (
	echoRequest = echoKind{8, 128}
	echoReply   = echoKind{0, 129}
)

// echo is an echo request or reply. Its form is the same in both families.
type echo struct {
	ID, Seq uint16
	Payload []byte
}

// headerLen is that of an echo message: type, code, checksum, id, sequence.
const headerLen = 8

// request builds the message for the family of dst. The checksum of ICMPv6
// covers addresses that only the kernel knows, and the kernel fills it in (RFC
// 3542, section 3.1); that of ICMP is computed here.
func (e echo) request(dst netip.Addr) []byte {
	msg := make([]byte, headerLen, headerLen+len(e.Payload))
	msg[0] = echoRequest.v6
	binary.BigEndian.PutUint16(msg[4:], e.ID)
	binary.BigEndian.PutUint16(msg[6:], e.Seq)
	msg = append(msg, e.Payload...)
	if dst.Is4() {
		msg[0] = echoRequest.v4
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	return msg
}

// parseEcho parses what a raw socket of that family received. For IPv4 that
// begins with the IP header, for IPv6 it does not (RFC 3542, section 3). It
// reports false for any message of another kind: a raw socket sees all.
func parseEcho(packet []byte, ipv4 bool, kind echoKind) (echo, bool) {
	want := kind.v6
	if ipv4 {
		want = kind.v4
		if len(packet) < 20 || packet[0]>>4 != 4 {
			return echo{}, false
		}
		header := int(packet[0]&0x0f) * 4
		if header < 20 || len(packet) < header {
			return echo{}, false
		}
		packet = packet[header:]
	}
	if len(packet) < headerLen || packet[0] != want || packet[1] != 0 {
		return echo{}, false
	}
	return echo{
		ID:      binary.BigEndian.Uint16(packet[4:]),
		Seq:     binary.BigEndian.Uint16(packet[6:]),
		Payload: packet[headerLen:],
	}, true
}

// checksum is the Internet checksum of RFC 1071, over a message whose own
// checksum field is zero.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// NoReplyError says that a ping stayed without an answer.
type NoReplyError struct {
	Addr netip.Addr
	Sent int
}

func (e *NoReplyError) Error() string {
	return fmt.Sprintf("ping %s: no reply to %d requests", e.Addr, e.Sent)
}
