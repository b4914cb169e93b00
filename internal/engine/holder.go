// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
)

// HeldError says whose an address is that is asked for. IPAM knows the key of
// the attachment only, and that tells nobody anything.
type HeldError struct {
	Used   *ipam.InUseError
	Holder attach.Key
	Pod    attach.Pod // whom the holder serves
}

func (e *HeldError) Error() string {
	return (&ipam.InUseError{Addr: e.Used.Addr, Owner: fmt.Sprintf("pod %s (%s)", e.Pod, e.Holder)}).Error()
}

// Unwrap returns what IPAM said.
func (e *HeldError) Unwrap() error { return e.Used }

// named has a refusal say which pod holds the address, where that is known.
func named(f *facts.Facts, err error) error {
	var used *ipam.InUseError
	if !errors.As(err, &used) {
		return err
	}
	k, kerr := attach.ParseKey(used.Owner)
	if kerr != nil {
		return err
	}
	rec, found := f.Get(k)
	if !found {
		return err
	}
	d, derr := rec.Detail()
	if derr != nil || d.Pod.Name == "" {
		return err
	}
	return &HeldError{Used: used, Holder: k, Pod: d.Pod}
}

// Contended says who has what an ADD of the key asks for: a *HeldError or an
// *ipam.InUseError for an address, a *facts.PortError for a port of the host, nil
// if nobody has any of it. It takes nothing.
func (e *Engine) Contended(ctx context.Context, k attach.Key, want []netip.Addr, ports []attach.Port) error {
	return e.Store.View(ctx, func(f *facts.Facts) error {
		usage := f.Usage(facts.Veth, k.Network)
		for _, addr := range want {
			if owner, used := usage.Owner(addr); used && owner != k.String() {
				return named(f, &ipam.InUseError{Addr: addr, Owner: owner})
			}
		}
		return f.CheckPorts(k, ports)
	})
}
