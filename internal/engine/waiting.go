// SPDX-License-Identifier: Apache-2.0

package engine

// Waiting returns how many interfaces are queued for removal.
func (r *Reaper) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}
