// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// quantile returns the q-quantile (0 to 1) of the samples, interpolated between
// neighbours. Without samples it is NaN.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	whole, part := math.Modf(q * float64(len(sorted)-1))
	below := int(whole)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + part*(sorted[above]-sorted[below])
}

// estimate is a median over rounds, with the least and the greatest of them.
type estimate struct{ Value, Low, High float64 }

func exact(v float64) estimate { return estimate{v, v, v} }

func estimateOf(rounds []float64) estimate {
	return estimate{quantile(rounds, 0.5), quantile(rounds, 0), quantile(rounds, 1)}
}

// ratios compares a quantity of the rounds of two contenders, round by round.
func ratios(a, b []round, of func(round) float64) estimate {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, of(a[i])/of(b[i]))
	}
	return estimateOf(all)
}

// over is a quantity over the rounds of one contender.
func over(rounds []round, of func(round) float64) estimate {
	var all []float64
	for _, r := range rounds {
		all = append(all, of(r))
	}
	return estimateOf(all)
}

// spread returns "0.1 to 0.2", or nothing where there is none.
func (e estimate) spread() string {
	if e.Low == e.High {
		return ""
	}
	return fmt.Sprintf("%.3g to %.3g", e.Low, e.High)
}
