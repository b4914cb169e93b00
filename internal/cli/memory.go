// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much of its heap the agent lets grow anew before it collects. By percent
// alone, as Go does it, one value is wrong for one of the two: an agent of a
// small cluster would collect all the time to save nothing, or that of a large
// one, nearly all of whose heap is what it knows of the cluster and changes
// little, would keep half as much again for nothing.
const (
	heapAllowance  = 6 << 20 // bytes
	minHeapGrowth  = 20      // percent
	maxHeapGrowth  = 100     // percent
	heapAdjustment = 10 * time.Second
	maxFree        = 4 << 20 // bytes that may be kept for nothing
)

// tuneCollector keeps the garbage collector at that until ctx ends, unless
// whoever started the agent has decided on it. It starts thriftily: the heap is
// largest while the registry is read for the first time. What that or a burst of
// changes took is given back, once the rest does not need it.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	now := minHeapGrowth
	debug.SetGCPercent(now)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(heapAdjustment):
		}
		metrics.Read(sample)
		if sample[1].Value.Uint64() > maxFree {
			debug.FreeOSMemory()
		}
		if next := heapGrowth(sample[0].Value.Uint64()); next != now {
			debug.SetGCPercent(next)
			now = next
		}
	}
}

// heapGrowth returns how much a heap of live bytes may grow, in percent, in
// steps of five: setting it anew stops the world.
func heapGrowth(live uint64) int {
	percent := int(100 * heapAllowance / max(live, 1))
	return min(max(percent-percent%5, minHeapGrowth), maxHeapGrowth)
}
