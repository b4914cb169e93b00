// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// quantile returns the q-quantile (0 to 1) of the samples, interpolated
// between neighbours (type 7 of Hyndman and Fan, 1996: the default of R and
// NumPy). Without samples it is NaN. It does not change samples.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	below := int(math.Floor(at))
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

func median(samples []float64) float64 { return quantile(samples, 0.5) }

// estimate is a value with an interval around it.
type estimate struct {
	Value     float64
	Low, High float64 // equal to Value where there is no spread to tell
}

func exact(v float64) estimate { return estimate{v, v, v} }

// resamples is how many times the bootstrap draws: enough for the second digit
// of an interval to be steady.
const resamples = 2000

// ratioOfMedians returns median(a)/median(b) with its 95 % interval. a[i] and
// b[i] are of the same round, and are drawn together.
//
// The random source is seeded with a constant: the same samples always give
// the same interval.
func ratioOfMedians(a, b []float64) estimate {
	n := min(len(a), len(b))
	e := exact(median(a) / median(b))
	if n < 2 {
		return e
	}
	random := rand.New(rand.NewPCG(1, 2))
	drawnA, drawnB := make([]float64, n), make([]float64, n)
	ratios := make([]float64, resamples)
	for i := range ratios {
		for j := range n {
			round := random.IntN(n)
			drawnA[j], drawnB[j] = a[round], b[round]
		}
		ratios[i] = median(drawnA) / median(drawnB)
	}
	e.Low, e.High = quantile(ratios, 0.025), quantile(ratios, 0.975)
	return e
}

// summary describes the distribution of one measured quantity.
type summary struct {
	N                  int
	P25, P50, P75, P99 float64
}

func summarize(samples []float64) summary {
	return summary{
		N:   len(samples),
		P25: quantile(samples, 0.25), P50: median(samples),
		P75: quantile(samples, 0.75), P99: quantile(samples, 0.99),
	}
}
