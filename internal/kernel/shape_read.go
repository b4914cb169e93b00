// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// queue is what RTM_NEWQDISC tells of a root queue.
type queue struct {
	kind  string
	rate  uint64 // of tbf
	limit uint32
}

func (q queue) String() string {
	if q.kind == "tbf" {
		return describeBucket(attach.Bucket{Rate: q.rate, Limit: q.limit})
	}
	return orNone(q.kind)
}

// bucketOf reads the root queue of a link.
func (c *conn) bucketOf(ifname string, index int) (q queue, err error) {
	m := &message{
		op: "look up queue of", object: ifname,
		req: request(unix.RTM_GETQDISC, unix.NLM_F_ECHO, tcHeader{index: index, parent: tcRoot}), // before 6.9 nothing is told without ECHO
		reply: func(body []byte) error {
			q, err = parseQueue(body)
			return err
		},
	}
	err = c.exec(m)
	if isErrno(err, unix.ENOENT) { // a link that has no queue
		err = nil
	}
	return q, err
}

func parseQueue(body []byte) (q queue, err error) {
	err = parseAttrs(body, nl.SizeofTcMsg, func(kind int, v []byte) {
		switch {
		case kind == tcaKind:
			q.kind = unix.ByteSliceToString(v)
		case kind == tcaOptions && q.kind == "tbf":
			_ = parseAttrs(v, 0, func(option int, v []byte) {
				switch {
				case option == tbfParams && len(v) >= 36:
					q.rate, q.limit = uint64(number(v[8:])), uint32(number(v[24:]))
				case option == tbfRate64 && len(v) == 8:
					q.rate = nl.NativeEndian().Uint64(v)
				}
			})
		}
	})
	return q, err
}

// redirectOf returns the index of the link to which our filter sends what comes
// in; 0: there is none.
func (c *conn) redirectOf(ifname string, index int) (to int, err error) {
	err = c.dumpStable(func() *message {
		to = 0
		return &message{
			op: "list filters of", object: ifname,
			req: request(unix.RTM_GETTFILTER, 0, tcHeader{index: index, parent: tcIngress, info: filterInfo}),
			reply: func(body []byte) error {
				return parseAttrs(body, nl.SizeofTcMsg, func(kind int, v []byte) {
					if target := mirredOf(kind, v); target != 0 {
						to = target
					}
				})
			},
		}
	})
	if isErrno(err, unix.ENOENT, unix.EINVAL) { // there is no place for filters
		return 0, nil
	}
	return to, err
}

// mirredOf digs in TCA_OPTIONS / TCA_U32_ACT / number / TCA_ACT_OPTIONS.
func mirredOf(kind int, options []byte) (to int) {
	if kind != tcaOptions {
		return 0
	}
	_ = parseAttrs(options, 0, func(kind int, actions []byte) {
		if kind != u32Act {
			return
		}
		_ = parseAttrs(actions, 0, func(_ int, action []byte) {
			_ = parseAttrs(action, 0, func(kind int, v []byte) {
				if kind != actOptions {
					return
				}
				_ = parseAttrs(v, 0, func(kind int, params []byte) {
					if kind == mirredParams && len(params) >= mirredIfindex+4 {
						to = number(params[mirredIfindex:])
					}
				})
			})
		})
	})
	return to
}

// shape compares the queues and the filter.
func (d *differences) shape(c *conn, p attach.Plan, hostEnd link) error {
	if !p.ToPod.IsZero() {
		if err := d.bucket(c, p.HostIfname, hostEnd.index, p.ToPod); err != nil {
			return err
		}
	}
	if p.Shaper == "" {
		return nil
	}
	shaper, found, err := c.findLink(p.Shaper)
	object := "link " + p.Shaper + " on the host"
	switch {
	case err != nil:
		return err
	case !found:
		d.add(object, exists, absent)
		return nil
	}
	d.expect(object, "kind "+kindIFB, "kind "+orNone(shaper.kind))
	d.expect("state of "+object, "up", state(shaper.up))
	to, err := c.redirectOf(p.HostIfname, hostEnd.index)
	if err != nil {
		return err
	}
	if to != shaper.index {
		d.add("filter on what comes in by "+p.HostIfname, fmt.Sprintf("to redirect to %s (index %d)", p.Shaper, shaper.index), redirection(to))
	}
	return d.bucket(c, p.Shaper, shaper.index, p.ToHost)
}

func redirection(to int) string {
	if to == 0 {
		return absent
	}
	return fmt.Sprintf("index %d", to)
}

func (d *differences) bucket(c *conn, ifname string, index int, want attach.Bucket) error {
	q, err := c.bucketOf(ifname, index)
	if err == nil {
		d.expect("queue of link "+ifname+" on the host", queue{"tbf", want.Rate, want.Limit}.String(), q.String())
	}
	return err
}

// mendShape puts back what is missing, and returns how much.
func (c *conn) mendShape(p attach.Plan, hostEnd link) (int, error) {
	if !shaped(p) {
		return 0, nil
	}
	d := &differences{}
	if err := d.shape(c, p, hostEnd); err != nil || len(d.list) == 0 {
		return 0, err
	}
	shaper, err := c.ensureShaper(p)
	if err != nil {
		return 0, err
	}
	msgs := shapeMessages(p, hostEnd.index, shaper.index)
	if p.Shaper != "" {
		gone := deleteRedirect(p.HostIfname, hostEnd.index)
		_ = c.exec(gone) // there may be none
	}
	return len(d.list), ignoring(c.exec(msgs...), msgs, unix.EEXIST)
}
