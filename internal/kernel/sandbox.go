// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"golang.org/x/sys/unix"
)

// LinkExistsIn reports whether a sandbox has an interface of this name.
func (h *Handle) LinkExistsIn(ns *Netns, name string) (bool, error) {
	var l link
	err := ns.with(func(c *conn) error { return c.exec(getLink(0, name, &l)) })
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return err == nil, err
}
