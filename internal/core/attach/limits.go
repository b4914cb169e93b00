// SPDX-License-Identifier: Apache-2.0

package attach

import "math"

// Limits bound what an attachment may send and receive.
type Limits struct {
	Ingress Limit `json:"ingress,omitzero"` // to the pod
	Egress  Limit `json:"egress,omitzero"`  // from the pod
}

// Limit is a rate that holds in the long run, and what may go beyond it at
// once.
type Limit struct {
	Rate  uint64 `json:"rate"`            // bits per second; 0: no limit
	Burst uint64 `json:"burst,omitempty"` // bits; 0: derived from the rate
}

// Bucket is a token bucket as the kernel has it (tc-tbf(8)). The zero Bucket is
// none.
type Bucket struct {
	Rate  uint64 // bytes per second
	Burst uint32 // bytes
	Limit uint32 // bytes that may wait
}

// IsZero reports whether there is no bucket.
func (b Bucket) IsZero() bool { return b == Bucket{} }

// MinBurst is the smallest burst in bytes. The kernel handles TCP in units of
// up to 64 KiB, which count with the headers of the segments that they become:
// a smaller bucket would have to take each apart, or never let it pass.
const MinBurst = 72 << 10

const (
	burstsPerSecond = 100 // a derived burst is what the rate gives in 10 ms
	waitsPerSecond  = 40  // a packet waits for 25 ms at most, as with the reference plugin
	bitsPerByte     = 8
	// unlimitedBurst is what containerd passes for want of a burst, in bits: 429
	// seconds of 10 Mbit/s, or no limit at all for most connections.
	unlimitedBurst = math.MaxUint32
)

// Bucket returns the bucket that enforces the limit.
func (l Limit) Bucket() Bucket {
	if l.Rate == 0 {
		return Bucket{}
	}
	rate := l.Rate / bitsPerByte
	if l.Rate%bitsPerByte != 0 {
		rate++
	}
	burst := l.Burst / bitsPerByte
	if l.Burst == 0 || l.Burst >= unlimitedBurst {
		burst = rate / burstsPerSecond
	}
	burst = min(max(burst, MinBurst), math.MaxInt32)
	return Bucket{Rate: rate, Burst: uint32(burst), Limit: uint32(min(burst+rate/waitsPerSecond, math.MaxUint32))}
}
