// SPDX-License-Identifier: Apache-2.0

package kernel

import "golang.org/x/sys/unix"

// LinkExists reports whether the Handle's namespace has a link of this name.
func (h *Handle) LinkExists(name string) (bool, error) {
	found := false
	err := h.with(func(c *conn) (err error) {
		_, found, err = c.findLink(name)
		return err
	})
	return found, err
}

// findLink looks a link up by name.
func (c *conn) findLink(name string) (l link, found bool, err error) {
	err = c.exec(getLink(0, name, &l))
	if isErrno(err, unix.ENODEV) {
		return link{}, false, nil
	}
	return l, err == nil, err
}
