// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/crash"
)

// HostPortTable is the nftables table, of family inet, in which ports of the
// host lead to pods. It is there as long as a pod has one. No network's own
// table can have this name: those have a dot where this has a hyphen.
const HostPortTable = "weft-hostport"

// PortTakenError says that a port of the host leads to a pod that this Weft
// has no record of: another one on the same host made it.
type PortTakenError struct {
	Port  attach.Port
	Owner string // what the mapping says of itself
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("host port %s: table inet %s leads it to another attachment already (%q); want another port or hostIP",
		e.Port, HostPortTable, e.Owner)
}

// mapPorts makes the plan's ports lead to the pod, and makes the table whole if
// it is not. It returns how many elements were missing.
func (h *Handle) mapPorts(p attach.Plan) (added int, err error) {
	want := portElements(p)
	err = h.editPorts("map the ports of "+p.HostIfname, func(s portTable) ([]*message, error) {
		missing, stale, err := h.portChanges(s, p.HostIfname, want)
		if err != nil {
			return nil, err
		}
		added = len(missing)
		if !s.whole {
			kept := slices.DeleteFunc(s.elements, func(e portElement) bool { return slices.ContainsFunc(stale, e.sameKey) })
			added = max(added, 1)
			return rebuildPortTable(append(kept, missing...)), nil
		}
		var msgs []*message
		for _, e := range stale {
			msgs = append(msgs, e.delete())
		}
		for _, e := range missing {
			msgs = append(msgs, e.add())
		}
		return msgs, nil
	})
	return added, err
}

// portChanges returns which elements are missing, and which must go: those of
// the same owner that are not wanted, and those in the way whose owner is gone.
func (h *Handle) portChanges(s portTable, owner string, want []portElement) (missing, stale []portElement, err error) {
	for _, w := range want {
		i := slices.IndexFunc(s.elements, w.sameKey)
		if i >= 0 && s.elements[i].same(w) {
			continue
		}
		missing = append(missing, w)
		if i < 0 || s.elements[i].owner() == owner {
			continue
		}
		lives, err := h.LinkExists(s.elements[i].owner())
		if err != nil {
			return nil, nil, err
		}
		if m, ok := w.mapping(); lives && ok {
			return nil, nil, &PortTakenError{Port: m.Port(), Owner: s.elements[i].comment}
		}
		stale = append(stale, s.elements[i])
	}
	for _, e := range s.elements {
		if e.owner() == owner && !slices.ContainsFunc(want, e.same) {
			stale = append(stale, e)
		}
	}
	return missing, stale, nil
}

// unmapPorts makes nothing lead to the pods of these host ends any more, and
// returns what did. empty reports that the table is there for nothing now.
func (h *Handle) unmapPorts(c *conn, hostIfnames []string) (gone []attach.Mapping, empty bool, err error) {
	err = h.editPortsBy(c, "unmap ports", func(s portTable) ([]*message, error) {
		var msgs []*message
		gone = nil
		for _, e := range s.elements {
			if !slices.Contains(hostIfnames, e.owner()) {
				continue
			}
			msgs = append(msgs, e.delete())
			if m, ok := e.mapping(); ok {
				gone = append(gone, m)
			}
		}
		empty = s.there && len(msgs) == len(s.elements)
		return msgs, nil
	})
	if err != nil {
		return nil, false, err
	}
	return gone, empty, nil
}

// dropPortTable deletes the table if nothing is in it.
func (h *Handle) dropPortTable() error {
	return h.editPorts("delete table "+HostPortTable, func(s portTable) ([]*message, error) {
		if !s.there || len(s.elements) > 0 {
			return nil, nil
		}
		return []*message{nftDeleteTable(HostPortTable)}, nil
	})
}

// removing runs remove, which deletes the links of these host ends, once nobody
// is led to them any more. The table goes after the links: its rules keep the
// pods from the host's loopback addresses.
//
// Deleting links is waiting for an RCU grace period. Meanwhile it is forgotten
// that somebody was led to them; and the one passes that closing the socket by
// which elements were deleted waits for, some 10 ms.
func (h *Handle) removing(hostIfnames []string, remove func() error) error {
	c, err := h.dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return errors.Join(err, remove())
	}
	defer c.close()
	gone, empty, err := h.unmapPorts(c, hostIfnames)
	if len(gone) > 0 {
		crash.Point("kernel-hostport:unmapped")
	}
	forgotten := make(chan error, 1)
	go func() { forgotten <- h.ForgetPorts(gone) }()
	if err = errors.Join(err, remove(), <-forgotten); err != nil || !empty {
		return err
	}
	err = h.dropPortTable()
	crash.Point("kernel-hostport:removed")
	return err
}

// maxPortEdits bounds the attempts at one change: each that fails means that
// somebody else changed a table of nftables at the same time.
const maxPortEdits = 200

// editPorts reads the table, asks what to change, and changes it in one
// transaction, which succeeds only if nobody changed anything in between.
func (h *Handle) editPorts(what string, change func(portTable) ([]*message, error)) error {
	return h.withNFT(func(c *conn) error { return h.editPortsBy(c, what, change) })
}

func (h *Handle) editPortsBy(c *conn, what string, change func(portTable) ([]*message, error)) (err error) {
	h.portMu.Lock()
	defer h.portMu.Unlock()
	for range maxPortEdits {
		var s portTable
		if s, err = c.readPortTable(); err != nil {
			return err
		}
		var msgs []*message
		if msgs, err = change(s); err != nil || len(msgs) == 0 {
			return err
		}
		err = c.transact(what, s.generation, msgs)
		if !isErrno(err, unix.ERESTART) {
			return err
		}
	}
	return err
}

// allowLoopback lets the host's own packets from 127.0.0.0/8 leave by the host
// end, where they get another source, and their answers come back. It is done
// after the table is there, whose rules let nothing else of that kind pass.
func (h *Handle) allowLoopback(p attach.Plan) error {
	if !slices.ContainsFunc(p.Ports, attach.Mapping.Loopback) {
		return nil
	}
	return h.with(func(c *conn) error {
		var l link
		if err := c.exec(getLink(0, p.HostIfname, &l)); err != nil || l.routeLocalnet {
			return err
		}
		return c.exec(setRouteLocalnet(p.HostIfname, l.index))
	})
}

// attachPorts is the ports' part of Attach.
func (h *Handle) attachPorts(p attach.Plan) error {
	if len(p.Ports) == 0 {
		return nil
	}
	crash.Point("kernel-hostport:before")
	_, err := h.mapPorts(p)
	crash.Point("kernel-hostport:mapped")
	if err == nil {
		err = h.allowLoopback(p)
	}
	if err == nil {
		err = h.redirectFlows(p.Ports)
	}
	crash.Point("kernel-hostport:after")
	return err
}

// mendPorts puts back what is missing, and returns how much.
func (h *Handle) mendPorts(p attach.Plan) (mended int, err error) {
	if len(p.Ports) == 0 {
		return 0, nil
	}
	if mended, err = h.mapPorts(p); err != nil {
		return 0, err
	}
	if err := h.allowLoopback(p); err != nil || mended == 0 {
		return mended, err
	}
	return mended, h.redirectFlows(p.Ports)
}

// ports compares the table with the plan.
func (d *differences) ports(h *Handle, p attach.Plan) error {
	if len(p.Ports) == 0 {
		return nil
	}
	return h.withNFT(func(c *conn) error {
		s, err := c.readPortTable()
		if err != nil {
			return err
		}
		if !s.there {
			d.add("table inet "+HostPortTable, exists, absent)
			return nil
		}
		if !s.whole {
			d.add("rules of table inet "+HostPortTable, "those of this release", "others")
		}
		for _, w := range portElements(p) {
			object := w.describe() + " in table inet " + HostPortTable
			switch i := slices.IndexFunc(s.elements, w.sameKey); {
			case i < 0:
				d.add(object, exists, absent)
			case !s.elements[i].same(w):
				d.add(object, "that of "+w.comment, s.elements[i].describe()+" of "+s.elements[i].comment)
			}
		}
		return nil
	})
}

// portComment marks an element: the host end, by which it is found again, then
// the attachment for the reader of `nft list ruleset`.
func portComment(p attach.Plan) string {
	const most = 120 // what nft(8) takes of a comment is 128
	_, k, pod, _ := attach.ParseAlias(p.Alias)
	s := strings.TrimSpace(p.HostIfname + " " + k.String() + " " + pod.String())
	return s[:min(len(s), most)]
}
