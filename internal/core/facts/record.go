// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/attach"
)

// Phase says how far a record has come. The value is the letter that stands
// for it in the journal.
type Phase byte

// Phases.
const (
	Intent    Phase = 'I' // kernel work may be under way or half done
	Complete  Phase = 'C' // all of it is done
	Releasing Phase = 'R' // DEL began; the addresses are still held
)

// String returns the word for the phase.
func (p Phase) String() string {
	switch p {
	case Intent:
		return "intent"
	case Complete:
		return "complete"
	case Releasing:
		return "releasing"
	case 0:
		return "none"
	default:
		return fmt.Sprintf("phase(%d)", byte(p))
	}
}

// MarshalText makes the phase a word in JSON and YAML views.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Kind says what a record is, and with it which addresses it competes for.
type Kind string

const (
	// Veth is an attachment made by weft-cni. All of them share one address
	// scope, whatever their network: each address is a route of the host.
	Veth Kind = "veth"
	// IPAM is a reservation that weft-ipam made for another plugin. Its
	// address scope is its network: the same subnet may be in use in two
	// networks that never meet.
	IPAM Kind = "ipam"
)

// NetnsID identifies a network namespace while anything holds it: the device
// and inode number of its nsfs file. A path may be reused by another
// namespace, so the path alone proves nothing.
type NetnsID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Delegate is the IPAM plugin of somebody else that granted the addresses. It
// is kept so that garbage collection can call its DEL when the runtime never
// does.
type Delegate struct {
	Type   string          `json:"type"`           // "ipam.type" of the configuration
	Path   string          `json:"path,omitempty"` // CNI_PATH of the ADD
	Config json.RawMessage `json:"config"`         // the configuration the plugin got on its standard input
}

// Record is one attachment or reservation. It is a value: it does not change
// when the facts do. The slice must not be modified.
type Record struct {
	Key       attach.Key
	Kind      Kind
	Phase     Phase
	Since     int64        // unix ns: when it entered the phase
	Created   int64        // unix ns: when its intent or reservation was written
	Suspect   int64        // unix ns: when its sandbox was first seen dead; 0: it is not suspected
	Addresses []netip.Addr // held; none while a delegate has yet to grant them

	detail string // JSON
}

// Detail decodes the rest of the record. It fails only if an entry was written
// by something else than this package's encoders.
func (r Record) Detail() (Detail, error) {
	var d Detail
	if err := json.Unmarshal([]byte(r.detail), &d); err != nil {
		return Detail{}, fmt.Errorf("decode the detail of %s: %w", r.Key, err)
	}
	return d, nil
}
