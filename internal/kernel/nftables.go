// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file sends transactions to nftables that depend on what was read before.
// The library's own transactions do not: they happen whatever has changed since.

const nftBatchGeneration = 1 // NFNL_BATCH_GENID, nfnetlink.h; Linux 4.11

// batchBuffer is the socket's send buffer in bytes: a transaction is one
// datagram, and one element takes some 200 bytes of it.
const batchBuffer = 4 << 20

func be32(kind int, v uint32) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint32(nil, v))
}

func nested(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	return attrs(kind|unix.NLA_F_NESTED, children...)
}

// nftMessage is one change of a transaction, in family inet.
func nftMessage(kind, flags int, op, object string, attributes ...*nl.RtAttr) *message {
	header := rawData{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}
	return &message{
		op: "nftables: " + op, object: object,
		req: request(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, header, attributes...),
	}
}

// transact sends the messages as one transaction: all or nothing. It fails with
// ERESTART if anything in nftables has changed since the generation.
func (c *conn) transact(what string, generation uint32, msgs []*message) error {
	header := rawData{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES} // the resource id is big endian
	begin := &message{
		op: "nftables:", object: what,
		req: request(unix.NFNL_MSG_BATCH_BEGIN, 0, header, be32(nftBatchGeneration, generation)),
	}
	end := request(unix.NFNL_MSG_BATCH_END, 0, header)
	last := msgs[len(msgs)-1]
	last.req.Flags |= unix.NLM_F_ACK
	bySeq := map[uint32]*message{begin.req.Seq: begin}
	datagram := begin.req.Serialize()
	for _, m := range msgs {
		m.err = nil
		bySeq[m.req.Seq] = m
		datagram = append(datagram, padded(m.req.Serialize())...)
	}
	datagram = append(datagram, end.Serialize()...)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, batchBuffer)
	if err := unix.Sendto(c.fd, datagram, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("nftables: %s: send netlink message: %w", what, err)
	}
	return c.verdict(begin, last, bySeq)
}

func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&(unix.NLMSG_ALIGNTO-1))...) }

// verdict reads answers until that of the last message, or until the kernel
// refuses the transaction as such, and returns the first error.
func (c *conn) verdict(begin, last *message, bySeq map[uint32]*message) (first error) {
	for {
		answers, err := c.receive()
		if err != nil {
			return fmt.Errorf("%s %s: %w", begin.op, begin.object, err)
		}
		for _, a := range answers {
			m := bySeq[a.Header.Seq]
			if m == nil || a.Header.Type != unix.NLMSG_ERROR {
				continue
			}
			if err := m.outcome(a); err != nil && first == nil {
				first = err
			}
			if m == last || (m == begin && isErrno(first, unix.ERESTART)) {
				return first
			}
		}
	}
}
