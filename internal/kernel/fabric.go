// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/crash"
)

// This file is what the drivers of addresses, neighbours and FDB entries have
// in common. All that is on a VXLAN device of ours is ours.

// NoDeviceError says that there is no device of the name, or none that is ours.
type NoDeviceError struct {
	Op, Object string // "add neighbour", "10.42.5.1 lladdr 9a:00:00:00:00:02 dev weft-vxlan"
	Device     string
}

func (e *NoDeviceError) Error() string {
	return fmt.Sprintf("%s %s: there is no device %s of weft's", e.Op, e.Object, e.Device)
}

// fabricDevice reports whether the link is a VXLAN device of a Weft's.
func (l link) fabricDevice() bool {
	return l.kind == kindVXLAN && (l.name == topology.VXLANDevice4 || l.name == topology.VXLANDevice6) &&
		(l.alias == "" || strings.HasPrefix(l.alias, aliasMark))
}

// fabricDevices returns our VXLAN devices. It takes one datagram.
func (c *conn) fabricDevices() ([]link, error) {
	var links [2]link
	msgs := []*message{getLink(0, topology.VXLANDevice4, &links[0]), getLink(0, topology.VXLANDevice6, &links[1])}
	if err := ignoring(c.exec(msgs...), msgs, unix.ENODEV); err != nil {
		return nil, err
	}
	var devices []link
	for _, l := range links {
		if l.fabricDevice() {
			devices = append(devices, l)
		}
	}
	return devices, nil
}

// fabricIndex returns the index of a device, 0 where it is missing.
func fabricIndex(devices []link, name string) int {
	for _, l := range devices {
		if l.name == name {
			return l.index
		}
	}
	return 0
}

// fabricName is the inverse of fabricIndex; "" where it is missing.
func fabricName(devices []link, index int) string {
	for _, l := range devices {
		if l.index == index {
			return l.name
		}
	}
	return ""
}

// operate carries out operations on what is on our devices, by one message
// each. harmless are the refusals that mean that there is nothing to delete.
func operate[K delta.Key[K], V any](
	h *Handle, ops []delta.Op[K, V], device func(K) string, write func(op delta.Op[K, V], index int) *message, harmless ...unix.Errno,
) []error {
	errs := make([]error, len(ops))
	err := h.with(func(c *conn) error {
		devices, err := c.fabricDevices()
		if err != nil {
			return err
		}
		var msgs []*message
		var at []int
		for i, op := range ops {
			name := device(op.Key)
			index := fabricIndex(devices, name)
			m := write(op, index)
			switch {
			case index != 0:
				msgs, at = append(msgs, m), append(at, i)
			case op.Verb != delta.Delete: // what was on a device is gone with it
				errs[i] = &NoDeviceError{Op: m.op, Object: m.object, Device: name}
			}
		}
		err = c.execEach(msgs)
		for i, m := range msgs {
			if ops[at[i]].Verb != delta.Delete || !isErrno(m.err, harmless...) {
				errs[at[i]] = m.err
			}
		}
		return err
	})
	return failing(errs, err)
}

// execEach is exec for messages that have nothing to do with each other: it
// fails only where the outcome of messages is not known, and they say so too.
func (c *conn) execEach(msgs []*message) error {
	if len(msgs) == 0 {
		return nil
	}
	crash.Point("kernel-fabric:before")
	err := c.exec(msgs...)
	crash.Point("kernel-fabric:after")
	if reusable(err) {
		return nil
	}
	for _, m := range msgs {
		m.err = errors.Join(m.err, err)
	}
	return err
}

// failing gives each operation without an error of its own the one that ended
// them all, if there is one.
func failing(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}
