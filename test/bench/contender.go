// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// sample is one call, in milliseconds. The parts are zero where there is no
// such part.
type sample struct {
	Total   float64 // as the runtime sees it
	Exec    float64 // of Total: from fork to the exit of the plugin
	Plugin  float64 // of Exec: what the plugin's log line says it took
	Agent   float64 // of Plugin: what the agent's log line says it took
	Settled float64 // DEL: until the interface is gone and the address free
}

// contender is one way to attach a sandbox.
type contender interface {
	Name() string
	// Attach and Detach do one call and measure it. The container id is new
	// for each pair.
	Attach(ctx context.Context, s *sandbox, container string) (sample, error)
	Detach(ctx context.Context, s *sandbox, container string) (sample, error)
	// Held returns how many addresses are not free.
	Held() (int, error)
}

// Names of the contenders; "4000" has that many addresses in use before the
// first round.
const (
	thick     = "thick"
	thin      = "thin"
	thick4000 = "thick_4000"
	thin4000  = "thin_4000"
	ptp       = "ptp"
	bridge    = "bridge"
	floor     = "floor"

	thickMasq  = "thick_masq"
	thinMasq   = "thin_masq"
	ptpMasq    = "ptp_masq"
	bridgeMasq = "bridge_masq"
)

const usedAddresses = 4000

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
