// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
)

// named has a refusal say which pod holds the address: IPAM knows the key of
// the attachment only, and that tells nobody anything.
func named(f *facts.Facts, err error) error {
	var used *ipam.InUseError
	if !errors.As(err, &used) {
		return err
	}
	parts := strings.Split(used.Owner, "/")
	if len(parts) != 3 {
		return err
	}
	rec, found := f.Get(attach.Key{Network: parts[0], ContainerID: parts[1], Ifname: parts[2]})
	if !found {
		return err
	}
	d, derr := rec.Detail()
	if derr != nil || d.Pod.Name == "" {
		return err
	}
	return &ipam.InUseError{Addr: used.Addr, Owner: fmt.Sprintf("pod %s (%s)", d.Pod, used.Owner)}
}
