// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"slices"

	"weft.dev/weft/internal/core/attach"
)

// Orphan is something that belongs to an attachment whose interface is gone.
type Orphan struct {
	Key        attach.Key // zero where the mark does not say
	HostIfname string
	Object     string // "port tcp 0.0.0.0:80 to 10.42.0.5:80", "link wshp3k9…"
}

// RemoveOrphans removes what does not go with a host end by itself: shapers and
// ports whose host end is not there. An attachment's host end is made first and
// deleted last, so that none under way is taken for one that has ended. It has
// no crash point: whoever is killed in it has left less to do.
func (h *Handle) RemoveOrphans() ([]Orphan, error) {
	shapers, err := h.removeShapers()
	ports, perr := h.removeOrphanPorts()
	return append(shapers, ports...), errors.Join(err, perr)
}

// removeShapers deletes by index: a shaper that was made since is another one.
func (h *Handle) removeShapers() (removed []Orphan, err error) {
	err = h.with(func(c *conn) error {
		links, err := c.dumpLinks(kindIFB)
		if err != nil {
			return err
		}
		for _, l := range links {
			owner, shaper := attach.ShapedBy(l.name)
			if !shaper || !l.ours() {
				continue
			}
			_, found, err := c.findLink(owner)
			if err != nil {
				return err
			}
			if found {
				continue
			}
			if err := c.removeOurs(l); err != nil {
				return err
			}
			_, k, _, _ := attach.ParseAlias(l.alias)
			removed = append(removed, Orphan{Key: k, HostIfname: owner, Object: "link " + l.name})
		}
		return nil
	})
	return removed, err
}

// removeOrphanPorts relies on the transaction: it fails, and all is looked at
// again, if an element was added since.
func (h *Handle) removeOrphanPorts() (removed []Orphan, err error) {
	var gone []attach.Mapping
	empty := false
	err = h.editPorts("unmap ports without an interface", func(s portTable) ([]*message, error) {
		var msgs []*message
		removed, gone, empty = nil, nil, s.there && len(s.elements) == 0
		there := map[string]bool{}
		for _, e := range s.elements {
			lives, known := there[e.owner()]
			if !known {
				var err error
				if lives, err = h.LinkExists(e.owner()); err != nil {
					return nil, err
				}
				there[e.owner()] = lives
			}
			if lives {
				continue
			}
			msgs = append(msgs, e.delete())
			if m, ok := e.mapping(); ok {
				gone = append(gone, m)
				removed = append(removed, Orphan{Key: e.attachment(), HostIfname: e.owner(), Object: e.describe()})
			}
		}
		return msgs, nil
	})
	if err != nil || (len(gone) == 0 && !empty) {
		return removed, err
	}
	return removed, errors.Join(h.ForgetPorts(gone), h.dropPortTable())
}

// mappedPorts returns the mappings by the host end that they belong to.
func (h *Handle) mappedPorts() (map[string][]attach.Mapping, error) {
	byOwner := map[string][]attach.Mapping{}
	err := h.withNFT(func(c *conn) error {
		s, err := c.readPortTable()
		for _, e := range s.elements {
			if m, ok := e.mapping(); ok {
				byOwner[e.owner()] = append(byOwner[e.owner()], m)
			}
		}
		return err
	})
	for _, list := range byOwner {
		slices.SortFunc(list, func(a, b attach.Mapping) int { return a.Host.Compare(b.Host) })
	}
	return byOwner, err
}
