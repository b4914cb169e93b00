// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"math"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/crash"
)

// What a pod receives waits in a token bucket (tbf) at the host end. What it
// sends cannot wait there, because it comes in: a filter sends it by way of an
// interface of kind ifb, the shaper, in whose token bucket it waits before it
// comes in. Both are out of the pod's reach.
//
//	to the pod     host ──▶ tbf, weft3k9… ──▶ eth0
//	from the pod   eth0 ──▶ weft3k9… ──filter──▶ tbf, wshp3k9… ──▶ weft3k9… ──▶ host

// Numbers of pkt_sched.h, pkt_cls.h, tc_mirred.h that package unix lacks.
const (
	tcRoot         = 0xffffffff // TC_H_ROOT
	tcClsact       = 0xfffffff1 // TC_H_CLSACT
	tcClsactHandle = 0xffff0000
	tcIngress      = 0xfffffff2 // TC_H_CLSACT and TC_H_MIN_INGRESS
	tcaKind        = 1          // TCA_KIND
	tcaOptions     = 2          // TCA_OPTIONS
	tbfParams      = 1          // TCA_TBF_PARMS
	tbfRate64      = 4          // TCA_TBF_RATE64
	tbfBurst       = 6          // TCA_TBF_BURST
	u32Sel         = 5          // TCA_U32_SEL
	u32Act         = 7          // TCA_U32_ACT
	actKind        = 1          // TCA_ACT_KIND
	actOptions     = 2          // TCA_ACT_OPTIONS
	mirredParams   = 2          // TCA_MIRRED_PARMS
	mirredIfindex  = 24         // where struct tc_mirred has it

	linkLayerEthernet = 1 // TC_LINKLAYER_ETHERNET
	u32Terminal       = 1 // TC_U32_TERMINAL
	actStolen         = 4 // TC_ACT_STOLEN
	egressRedirect    = 1 // TCA_EGRESS_REDIR

	tbfHandle = 0x77650000 // 7765: "we" in ASCII
	// shapePriority is behind the filters of others: one that takes a packet to
	// another queue ends the search.
	shapePriority = 0x7765
)

// shaped reports whether the plan has limits.
func shaped(p attach.Plan) bool { return !p.ToPod.IsZero() || !p.ToHost.IsZero() }

// attachShape is the limits' part of Attach.
func (c *conn) attachShape(p attach.Plan, index int) error {
	if !shaped(p) {
		return nil
	}
	crash.Point("kernel-shape:before")
	shaper, err := c.ensureShaper(p)
	crash.Point("kernel-shape:shaper")
	if err == nil {
		err = c.exec(shapeMessages(p, index, shaper.index)...)
	}
	crash.Point("kernel-shape:after")
	return err
}

// ensureShaper makes the interface in which what the pod sends waits.
func (c *conn) ensureShaper(p attach.Plan) (l link, err error) {
	if p.Shaper == "" {
		return link{}, nil
	}
	add, get := addIFB(p.Shaper), getLink(0, p.Shaper, &l)
	alias := setLink("set alias of", p.Shaper, 0, text(unix.IFLA_IFNAME, p.Shaper), nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(p.Alias)))
	msgs := []*message{add, get}
	err = ignoring(c.exec(msgs...), msgs, unix.EEXIST)
	if err == nil && !l.ours() {
		err = &HostLinkExistsError{Ifname: p.Shaper, Alias: l.alias}
	}
	if err == nil && l.alias != p.Alias {
		err = c.exec(alias)
	}
	return l, err
}

func addIFB(name string) *message {
	return &message{
		op: "add link", object: name + " type ifb",
		req: request(unix.RTM_NEWLINK, create, linkHeader(0), text(unix.IFLA_IFNAME, name),
			attrs(unix.IFLA_LINKINFO, nl.NewRtAttr(unix.IFLA_INFO_KIND, []byte(kindIFB)))),
	}
}

// shapeMessages makes the queues, in place of others, and the filter.
func shapeMessages(p attach.Plan, index, shaper int) []*message {
	var msgs []*message
	if !p.ToPod.IsZero() {
		msgs = append(msgs, setBucket(p.HostIfname, index, p.ToPod))
	}
	if !p.ToHost.IsZero() {
		msgs = append(msgs, setUp(p.Shaper, shaper), setBucket(p.Shaper, shaper, p.ToHost),
			addClsact(p.HostIfname, index), redirect(p.HostIfname, index, shaper))
	}
	return msgs
}

// tcHeader is struct tcmsg.
type tcHeader struct {
	index                int
	handle, parent, info uint32
}

func (h tcHeader) Len() int { return nl.SizeofTcMsg }

func (h tcHeader) Serialize() []byte {
	b := make([]byte, nl.SizeofTcMsg)
	native := nl.NativeEndian()
	native.PutUint32(b[4:], uint32(h.index))
	native.PutUint32(b[8:], h.handle)
	native.PutUint32(b[12:], h.parent)
	native.PutUint32(b[16:], h.info)
	return b
}

// setBucket makes a token bucket the link's root queue, or changes the one that
// is there.
func setBucket(ifname string, index int, b attach.Bucket) *message {
	native := nl.NativeEndian()
	params := make([]byte, 36) // struct tc_tbf_qopt: rate, peak rate, limit, buffer, mtu
	params[1] = linkLayerEthernet
	native.PutUint32(params[8:], uint32(min(b.Rate, math.MaxUint32)))
	native.PutUint32(params[24:], b.Limit)
	options := []*nl.RtAttr{nl.NewRtAttr(tbfParams, params), u32(tbfBurst, int(b.Burst))}
	if b.Rate > math.MaxUint32 {
		options = append(options, nl.NewRtAttr(tbfRate64, nl.Uint64Attr(b.Rate)))
	}
	return &message{
		op: "set queue of", object: fmt.Sprintf("%s to %s", ifname, describeBucket(b)),
		req: request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, tcHeader{index: index, handle: tbfHandle, parent: tcRoot},
			text(tcaKind, "tbf"), attrs(tcaOptions, options...)),
	}
}

func describeBucket(b attach.Bucket) string {
	return fmt.Sprintf("tbf rate %d bytes/s limit %d bytes", b.Rate, b.Limit)
}

// addClsact makes room for filters on what comes in.
func addClsact(ifname string, index int) *message {
	return &message{
		op: "add queue clsact to", object: ifname,
		req: request(unix.RTM_NEWQDISC, create, tcHeader{index: index, handle: tcClsactHandle, parent: tcClsact}, text(tcaKind, "clsact")),
	}
}

// filterInfo is priority and protocol; the latter in the network's byte order.
const filterInfo = shapePriority<<16 | unix.ETH_P_ALL<<8&0xff00

// redirect sends everything that comes in to the other link.
func redirect(ifname string, index, to int) *message {
	native := nl.NativeEndian()
	sel := make([]byte, 32) // struct tc_u32_sel, with one key whose mask is 0
	sel[0], sel[2] = u32Terminal, 1
	params := make([]byte, 28) // struct tc_mirred
	native.PutUint32(params[8:], actStolen)
	native.PutUint32(params[20:], egressRedirect)
	native.PutUint32(params[mirredIfindex:], uint32(to))
	action := attrs(1, text(actKind, "mirred"), attrs(actOptions, nl.NewRtAttr(mirredParams, params)))
	return &message{
		op: "redirect what comes in by", object: ifname,
		req: request(unix.RTM_NEWTFILTER, create, tcHeader{index: index, parent: tcIngress, info: filterInfo},
			text(tcaKind, "u32"), attrs(tcaOptions, nl.NewRtAttr(u32Sel, sel), attrs(u32Act, action))),
	}
}

// deleteRedirect deletes our filters.
func deleteRedirect(ifname string, index int) *message {
	return &message{
		op: "delete filter of", object: ifname,
		req: request(unix.RTM_DELTFILTER, 0, tcHeader{index: index, parent: tcIngress, info: filterInfo}),
	}
}
