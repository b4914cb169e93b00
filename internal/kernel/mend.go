// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// Mend puts back what somebody took from the host's side of an attachment: its
// interface up, its routes, its neighbours, its ports and limits. What is there stays as it is, and
// an interface that is gone is not made anew. It returns how many objects were
// missing. It has no crash point: it may run beside any call, and whoever is
// killed in it has left less to do.
func (h *Handle) Mend(p attach.Plan) (mended int, err error) {
	err = h.with(func(c *conn) error {
		var l link
		if err := c.exec(getLink(0, p.HostIfname, &l)); err != nil {
			if isErrno(err, unix.ENODEV) {
				return nil
			}
			return err
		}
		var msgs []*message
		if !l.up {
			msgs = append(msgs, setUp(p.HostIfname, l.index))
		}
		for _, dst := range p.HostRoutes {
			msgs = append(msgs, addHostRoute(dst, p.HostIfname, l.index))
		}
		for _, n := range p.HostNeighbours {
			m := addPodNeighbour(n, p.HostIfname, l.index)
			m.req.Flags = m.req.Flags&^unix.NLM_F_REPLACE | unix.NLM_F_EXCL
			msgs = append(msgs, m)
		}
		err := ignoring(c.exec(msgs...), msgs, unix.EEXIST)
		for _, m := range msgs {
			if m.err == nil {
				mended++
			}
		}
		if err != nil {
			return err
		}
		n, err := c.mendShape(p, l)
		if mended += n; err != nil {
			return err
		}
		n, err = h.mendPorts(p)
		mended += n
		return err
	})
	return mended, err
}
