// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/crash"
)

// DoomedGroup is the interface group ("weft" in ASCII) of links that DetachAll
// is about to delete. Whatever is in it is deleted by the next DetachAll too,
// so nothing else may be put there.
const DoomedGroup = 0x77656674

// Detach deletes the host end, and with it the other end and every address,
// route and neighbour of both, and its ports and limits. A link that is not
// there is no error. A link that is not ours is left alone: *ForeignLinkError.
//
// It takes about 20 ms, all of it waiting for an RCU grace period; DetachAll
// takes no longer for many.
func (h *Handle) Detach(hostIfname string) error { return h.DetachAll([]string{hostIfname}) }

// deleteOurs deletes by index: should the name have passed to another link
// since it was looked up, that one is safe.
func (c *conn) deleteOurs(l link) error {
	if !l.ours() {
		return &ForeignLinkError{Ifname: l.name, Kind: l.kind, Alias: l.alias}
	}
	crash.Point("kernel-link-delete:before")
	err := c.removeOurs(l)
	crash.Point("kernel-link-delete:after")
	return err
}

func (c *conn) removeOurs(l link) error {
	err := c.exec(delLink(l.name, l.index))
	if isErrno(err, unix.ENODEV) {
		return nil // somebody was faster
	}
	return err
}

// DetachAll is Detach for many at the price of one: it collects the links in
// DoomedGroup and deletes the group. Those that are not ours are left alone
// and reported, joined into one error; the others are deleted all the same.
func (h *Handle) DetachAll(hostIfnames []string) error {
	return h.removing(hostIfnames, func() error { return h.detachAll(hostIfnames) })
}

func (h *Handle) detachAll(hostIfnames []string) error {
	names := make([]string, 0, 2*len(hostIfnames))
	for _, name := range hostIfnames {
		names = append(names, name, attach.Shaper(name))
	}
	return h.with(func(c *conn) error {
		ours, errs := c.findOurs(names)
		if len(ours) > 1 {
			crash.Point("kernel-group-delete:before")
			ours = c.deleteTogether(ours)
			crash.Point("kernel-group-delete:after")
		}
		for _, l := range ours {
			errs = append(errs, c.deleteOurs(l))
		}
		return errors.Join(errs...)
	})
}

func (c *conn) findOurs(names []string) (ours []link, errs []error) {
	found := make([]link, len(names))
	msgs := make([]*message, len(names))
	for i, name := range names {
		msgs[i] = getLink(0, name, &found[i])
	}
	if err := c.exec(msgs...); err != nil && firstError(msgs) == nil {
		return nil, []error{err}
	}
	for i, m := range msgs {
		switch {
		case isErrno(m.err, unix.ENODEV):
		case m.err != nil:
			errs = append(errs, m.err)
		case !found[i].ours():
			errs = append(errs, &ForeignLinkError{Ifname: found[i].name, Kind: found[i].kind, Alias: found[i].alias})
		default:
			ours = append(ours, found[i])
		}
	}
	return ours, errs
}

// deleteTogether returns the links that are to be deleted one by one instead,
// because the kernel refused the group.
func (c *conn) deleteTogether(links []link) []link {
	msgs := make([]*message, len(links))
	for i, l := range links {
		msgs[i] = setGroup(l.name, l.index, DoomedGroup)
	}
	_ = c.exec(msgs...)
	crash.Point("kernel-group-delete:marked")
	err := c.exec(delGroup(DoomedGroup))
	if err != nil && !isErrno(err, unix.ENODEV) {
		return links
	}
	var rest []link
	for i, m := range msgs {
		if m.err != nil && !isErrno(m.err, unix.ENODEV) {
			rest = append(rest, links[i])
		}
	}
	return rest
}
