// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
)

// OpError is a request that the kernel refused.
type OpError struct {
	Op      string // verb and kind: "add route"
	Object  string // which one: "10.42.3.0/24 via 169.254.1.1 dev eth0 in the sandbox"
	Message string // the kernel's own words (extended acknowledgement, Linux 4.12), or ""
	Err     error  // the errno
}

func (e *OpError) Error() string {
	s := e.Op
	if e.Object != "" {
		s += " " + e.Object
	}
	s += ": " + e.Err.Error()
	if e.Message != "" {
		s += " (kernel: " + e.Message + ")"
	}
	return s
}

func (e *OpError) Unwrap() error { return e.Err }

// ExistsError says that the sandbox already has an interface of the wanted
// name. Nothing was changed.
type ExistsError struct {
	Ifname string
	Netns  string // path of the sandbox
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("add link %s: the sandbox %s already has an interface of this name; "+
		"delete the earlier attachment or choose another interface name", e.Ifname, e.Netns)
}

// HostLinkExistsError says that the host end's name is taken. Nothing was
// changed. The link may be a leftover of the same attachment: Detach removes
// it if it is ours.
type HostLinkExistsError struct {
	Ifname string
	Alias  string // what the existing link says of itself
}

func (e *HostLinkExistsError) Error() string {
	return fmt.Sprintf("add link %s: the host already has an interface of this name (alias %q)", e.Ifname, e.Alias)
}

// RouteExistsError says that the host already has a route to an address of
// the plan, so that the address is in use by something else.
type RouteExistsError struct {
	Dst    netip.Prefix
	Device string // the interface that the existing route leads to; "" if unknown
}

func (e *RouteExistsError) Error() string {
	dev := e.Device
	if dev == "" {
		dev = "an unknown interface"
	}
	return fmt.Sprintf("add route %s: the host already has a route to it, by %s; "+
		"the address is in use there, or left behind by an attachment that was not deleted", e.Dst, dev)
}

// ForeignLinkError says that a link to be deleted was not made by Weft. It was
// left alone.
type ForeignLinkError struct {
	Ifname string
	Kind   string // "" for hardware
	Alias  string
}

func (e *ForeignLinkError) Error() string {
	kind := e.Kind
	if kind == "" {
		kind = "no virtual kind"
	}
	return fmt.Sprintf("delete link %s: not made by weft (kind: %s, alias: %q; expected kind veth or ifb and an alias that "+
		"begins with %q); delete it by hand if it is not needed", e.Ifname, kind, e.Alias, aliasMark)
}

// NotNetnsError says that a path does not lead to a network namespace.
type NotNetnsError struct {
	Path  string
	Found string // "directory", "regular file", "socket", "mount namespace", ...
}

func (e *NotNetnsError) Error() string {
	return fmt.Sprintf("open network namespace %q: expected a network namespace, found a %s", e.Path, e.Found)
}

// SysctlError says that a kernel parameter could not be read or written.
type SysctlError struct {
	Key string // as given by the caller
	Err error
}

func (e *SysctlError) Error() string { return fmt.Sprintf("sysctl %q: %v", e.Key, e.Err) }

func (e *SysctlError) Unwrap() error { return e.Err }
