// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// A client that sends UDP without pause keeps its connection tracking entry
// alive, and with it what was decided about its first packet: it would never
// notice that a port has begun to lead to a pod, or leads to another one.

// Messages and attributes of nfnetlink_conntrack.h.
const (
	conntrackGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	conntrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25 // Linux 5.8; an older kernel sends everything
	ctaFilterOrig = 1

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaProtoDst   = 3

	// Which fields of the tuple count: CTA_FILTER_F_CTA_PROTO_NUM and _DST_PORT.
	ctaFilterProtoNum, ctaFilterDstPort = 1 << 3, 1 << 5
)

// flow is a connection tracking entry.
type flow struct {
	protocol attach.Protocol
	dst      netip.AddrPort // where the first packet was sent to
	from     netip.AddrPort // where its answers come from: dst, unless that was translated
	zone     bool           // it is in a zone of somebody's own
	orig, id []byte         // by which it is deleted
}

// redirectFlows forgets the UDP flows to the ports that do not go to the pod.
// One that the host merely forwards, to the same port of another machine, is
// left alone.
func (h *Handle) redirectFlows(ports []attach.Mapping) error {
	return h.forgetFlows(ports, func(c *conn, m attach.Mapping, f flow) (bool, error) {
		if f.from.Addr() == m.Pod.Addr() {
			return false, nil
		}
		if !m.Host.Addr().IsUnspecified() {
			return f.dst.Addr() == m.Host.Addr(), nil
		}
		var r route
		err := c.exec(lookUpRoute(f.dst.Addr(), &r))
		if isErrno(err, unix.ENETUNREACH, unix.EHOSTUNREACH) {
			return false, nil
		}
		return r.kind == unix.RTN_LOCAL, err
	})
}

// ForgetPorts forgets the UDP flows that go to the pods of mappings which are
// no more.
func (h *Handle) ForgetPorts(ports []attach.Mapping) error {
	return h.forgetFlows(ports, func(_ *conn, m attach.Mapping, f flow) (bool, error) { return f.from == m.Pod, nil })
}

// forgetFlows deletes the flows to ports of the host that stale says so of. To
// list them the kernel locks each bucket of its table, for each family: 9 ms,
// however few they are. (Linux 6.11 can delete by filter, in a twentieth of that;
// but it compares IPv6 addresses the wrong way round, and an older kernel takes
// such a request for one to delete everything.)
func (h *Handle) forgetFlows(ports []attach.Mapping, stale func(*conn, attach.Mapping, flow) (bool, error)) error {
	for _, ipv6 := range []bool{false, true} {
		var group []attach.Mapping
		for _, m := range ports {
			if m.Protocol == attach.UDP && m.Pod.Addr().Is6() == ipv6 {
				group = append(group, m)
			}
		}
		if len(group) == 0 {
			continue
		}
		err := h.withNFT(func(tracking *conn) error {
			flows, err := tracking.flowsTo(group)
			if err != nil || len(flows) == 0 {
				return err
			}
			return h.with(func(routes *conn) error { return tracking.forgetStale(routes, group, flows, stale) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) forgetStale(routes *conn, ports []attach.Mapping, flows []flow, stale func(*conn, attach.Mapping, flow) (bool, error)) error {
	var msgs []*message
	for _, f := range flows {
		for _, m := range ports {
			if f.dst.Port() != m.Host.Port() {
				continue
			}
			is, err := stale(routes, m, f)
			if err != nil {
				return err
			}
			if is {
				msgs = append(msgs, deleteFlow(f))
				break
			}
		}
	}
	if len(msgs) == 0 {
		return nil
	}
	return ignoring(c.exec(msgs...), msgs, unix.ENOENT)
}

// flowsTo lists the UDP flows to the host's ports, which are of one family. The
// kernel compares with one port, or leaves it to us.
func (c *conn) flowsTo(ports []attach.Mapping) ([]flow, error) {
	var flows []flow
	family := uint8(familyOf(ports[0].Pod.Addr()))
	port := binary.BigEndian.AppendUint16(nil, ports[0].Host.Port())
	fields := ctaFilterProtoNum
	if len(ports) == 1 {
		fields |= ctaFilterDstPort
	}
	err := c.dumpStable(func() *message {
		flows = nil
		header := rawData{family, unix.NFNETLINK_V0, 0, 0}
		return &message{
			op: "list tracked connections to", object: fmt.Sprint(ports),
			req: request(conntrackGet, 0, header,
				nested(ctaTupleOrig, nested(ctaTupleProto, nl.NewRtAttr(ctaProtoNum, []byte{byte(attach.UDP)}), nl.NewRtAttr(ctaProtoDst, port))),
				nested(ctaFilter, u32(ctaFilterOrig, fields))),
			reply: func(body []byte) error {
				f, err := parseFlow(body)
				if err == nil && body[0] == family && f.protocol == attach.UDP && !f.zone {
					flows = append(flows, f)
				}
				return err
			},
		}
	})
	return flows, err
}

func deleteFlow(f flow) *message {
	attributes := []*nl.RtAttr{nl.NewRtAttr(ctaTupleOrig|unix.NLA_F_NESTED, f.orig)}
	if f.id != nil { // another flow may have the same tuple by now
		attributes = append(attributes, nl.NewRtAttr(ctaID, f.id))
	}
	header := rawData{uint8(familyOf(f.dst.Addr())), unix.NFNETLINK_V0, 0, 0}
	return &message{op: "forget tracked connection to", object: f.dst.String(), req: request(conntrackDelete, 0, header, attributes...)}
}

func parseFlow(body []byte) (f flow, err error) {
	err = parseAttrs(body, nfnetlinkHeader, func(kind int, v []byte) {
		switch kind {
		case ctaTupleOrig:
			f.orig = bytes.Clone(v)
			_, f.dst, f.protocol = parseTuple(v)
		case ctaTupleReply:
			f.from, _, _ = parseTuple(v)
		case ctaID:
			f.id = bytes.Clone(v)
		case ctaZone:
			f.zone = true
		}
	})
	return f, err
}

func parseTuple(tuple []byte) (src, dst netip.AddrPort, protocol attach.Protocol) {
	var addrs [2]netip.Addr
	var ports [2]uint16
	_ = parseAttrs(tuple, 0, func(kind int, v []byte) {
		_ = parseAttrs(v, 0, func(field int, v []byte) {
			switch {
			case kind == ctaTupleIP: // source and destination, IPv4's then IPv6's
				addrs[(field+1)%2] = addrOf(v)
			case kind == ctaTupleProto && field == ctaProtoNum && len(v) == 1:
				protocol = attach.Protocol(v[0])
			case kind == ctaTupleProto && (field == ctaProtoSrc || field == ctaProtoDst) && len(v) == 2:
				ports[field-ctaProtoSrc] = binary.BigEndian.Uint16(v)
			}
		})
	})
	return netip.AddrPortFrom(addrs[0], ports[0]), netip.AddrPortFrom(addrs[1], ports[1]), protocol
}
