// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// PortError says that a port of the host leads to another attachment already.
type PortError struct {
	Port  attach.Port // that is wanted
	Key   attach.Key  // who wants it
	Held  attach.Port // that overlaps with it
	Owner attach.Key
	Pod   attach.Pod // whom the owner serves
}

func (e *PortError) Error() string {
	owner := "attachment " + e.Owner.String()
	if name := e.Pod.String(); name != "" {
		owner = "pod " + name + ", " + owner
	}
	return fmt.Sprintf("host port %s for %s: %s has host port %s; want another port or hostIP, or that pod on another node",
		e.Port, e.Key, owner, e.Held)
}

// CheckPorts returns a *PortError unless the key may have all these ports. A
// port is held as long as its record is there: until it leads nowhere.
func (f *Facts) CheckPorts(k attach.Key, ports []attach.Port) error {
	if len(ports) == 0 {
		return nil
	}
	for i := range f.slots {
		s := &f.slots[i]
		// Few attachments have any, and decoding costs more than looking.
		if s.text == "" || !strings.Contains(s.text, `"ports":[`) || s.label() == k.String() {
			continue
		}
		d, err := s.record().Detail()
		if err != nil {
			return err
		}
		for _, held := range d.Ports {
			for _, p := range ports {
				if p.Overlaps(held) {
					return &PortError{Port: p, Key: k, Held: held, Owner: keyOf(s.label()), Pod: d.Pod}
				}
			}
		}
	}
	return nil
}
