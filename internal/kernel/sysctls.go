// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

// Kernel parameters that a node of a network needs at "1". With IPv6 forwarding
// the kernel ignores router advertisements on interfaces with accept_ra=1; an
// uplink that needs them wants accept_ra=2.
const (
	ForwardingIPv4 topology.SysctlKey = "net/ipv4/ip_forward"
	ForwardingIPv6 topology.SysctlKey = "net/ipv6/conf/all/forwarding"
)

// sysctls remembers what it looks after: a parameter cannot be asked for its
// owner.
type sysctls struct {
	h    *Handle
	mu   sync.Mutex
	keys map[topology.SysctlKey]bool
}

// Sysctls returns the driver of kernel parameters. It observes the given ones
// and those that were added, until they are deleted. Deleting one ends the care
// for it and leaves its value: others may need it.
func (h *Handle) Sysctls(keys ...topology.SysctlKey) *sysctls {
	d := &sysctls{h: h, keys: map[topology.SysctlKey]bool{}}
	for _, k := range keys {
		d.keys[k] = true
	}
	return d
}

// Observe implements reconcile.Driver. A parameter that this kernel lacks, as
// one of IPv6 may be, is absent.
func (d *sysctls) Observe() (map[topology.SysctlKey]topology.Sysctl, error) {
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.keys))
	d.mu.Unlock()
	observed := make(map[topology.SysctlKey]topology.Sysctl, len(keys))
	err := d.h.inside(func() error {
		for _, k := range keys {
			v, err := readSysctl(string(k))
			if errors.Is(err, errUnknownSysctl) {
				continue
			}
			if err != nil {
				return err
			}
			observed[k] = topology.Sysctl(v)
		}
		return nil
	})
	return observed, err
}

// Apply implements reconcile.Driver.
func (d *sysctls) Apply(ops []delta.Op[topology.SysctlKey, topology.Sysctl]) []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := make([]error, len(ops))
	err := d.h.inside(func() error {
		for i, op := range ops {
			if op.Verb == delta.Delete {
				delete(d.keys, op.Key)
				continue
			}
			if errs[i] = ensureSysctl(string(op.Key), string(op.Want)); errs[i] == nil {
				d.keys[op.Key] = true
			}
		}
		return nil
	})
	return failing(errs, err)
}

// ensureSysctl writes only what differs: writing some keys has effects on every
// interface even if nothing changes.
func ensureSysctl(key, value string) error {
	if v, err := readSysctl(key); err == nil && v == value {
		return nil
	}
	return writeSysctl(key, value)
}
