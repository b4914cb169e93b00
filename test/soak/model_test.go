// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"weft.dev/weft/internal/core/attach"
)

// model is what the runtime knows: it believes nothing but acknowledgements.
type model struct {
	mu    sync.Mutex
	held  map[netip.Addr]attach.Key   // by attachments between the answer to ADD and the begin of DEL
	live  map[attach.Key][]netip.Addr // the same, by attachment
	known map[attach.Key]bool         // from before ADD until DEL was acknowledged, or the sandbox abandoned
	count counts
}

// counts is what happened, for the summary.
type counts struct {
	pairs, addKills, delKills, agentKills, abandoned, repeatedAdds, repeatedDels, tryAgain, gcs, looks, judged int
}

func newModel() *model {
	return &model{held: map[netip.Addr]attach.Key{}, live: map[attach.Key][]netip.Addr{}, known: map[attach.Key]bool{}}
}

// add counts something.
func (m *model) add(f func(*counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.count)
}

func (m *model) counts() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// begin is called before the first ADD of an attachment.
func (m *model) begin(k attach.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[k] = true
}

// attached takes an acknowledged ADD. It returns an error if somebody else has
// one of the addresses, or the same attachment had others.
func (m *model) attached(k attach.Key, addrs []netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, again := m.live[k]; again && !slices.Equal(before, addrs) {
		return fmt.Errorf("%s was acknowledged with %v and then with %v", k, before, addrs)
	}
	for _, a := range addrs {
		if other, taken := m.held[a]; taken && other != k {
			return fmt.Errorf("address %s is acknowledged to %s and to %s", a, other, k)
		}
		m.held[a] = k
	}
	m.live[k] = addrs
	return nil
}

// leaving is called before the first DEL, or before the sandbox goes.
func (m *model) leaving(k attach.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.live[k] {
		delete(m.held, a)
	}
	delete(m.live, k)
}

// ended is called when the runtime forgets the attachment.
func (m *model) ended(k attach.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, k)
}

// list is what a runtime lists at GC.
func (m *model) list() []attach.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []attach.Key
	for k := range m.known {
		keys = append(keys, k)
	}
	return keys
}

// holders returns who holds which address now.
func (m *model) holders() map[netip.Addr]attach.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	copied := make(map[netip.Addr]attach.Key, len(m.held))
	for a, k := range m.held {
		copied[a] = k
	}
	return copied
}

// disagreements compares what the host leads where with the model before and
// after it was looked at: what was held by the same attachment at both moments
// must be led to its interface. No attachment uses a container id again, so
// equal at both moments means equal between.
func disagreements(before, after map[netip.Addr]attach.Key, led map[netip.Addr]string) []string {
	var found []string
	for a, k := range before {
		if after[a] != k {
			continue
		}
		if link := led[a]; link != k.HostIfname() && link != "" {
			found = append(found, fmt.Sprintf("address %s of %s is led to %s instead of %s", a, k, link, k.HostIfname()))
		}
		if _, any := led[a]; !any {
			found = append(found, fmt.Sprintf("address %s of %s is led nowhere", a, k))
		}
	}
	slices.Sort(found)
	return found
}
