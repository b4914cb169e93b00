// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		q       float64
		want    float64
	}{
		{"one sample", []float64{7}, 0.99, 7},
		{"median of odd count", []float64{3, 1, 2}, 0.5, 2},
		{"median of even count", []float64{4, 1, 3, 2}, 0.5, 2.5},
		{"lowest", []float64{4, 1, 3, 2}, 0, 1},
		{"highest", []float64{4, 1, 3, 2}, 1, 4},
		{"interpolated", []float64{10, 20, 30, 40, 50}, 0.3, 22},
		{"p99 of 101", series(101), 0.99, 99},
		{"quartile", series(5), 0.25, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := quantile(tt.samples, tt.q); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("quantile(%v, %v) = %v, want %v", tt.samples, tt.q, got, tt.want)
			}
		})
	}
}

func series(n int) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = float64(i)
	}
	return s
}

func TestQuantileOfNothingIsNaN(t *testing.T) {
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile(nil) = %v, want NaN", got)
	}
}

func TestQuantileKeepsTheOrderOfItsInput(t *testing.T) {
	samples := []float64{3, 1, 2}
	quantile(samples, 0.5)
	if !slices.Equal(samples, []float64{3, 1, 2}) {
		t.Errorf("samples became %v", samples)
	}
}

var positive = rapid.SliceOfN(rapid.Float64Range(0.1, 1000), 2, 40)

// Quantiles lie within the samples and do not decrease with q.
func TestQuantileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := positive.Draw(t, "samples")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		r := rapid.Float64Range(q, 1).Draw(t, "r")
		low, high := quantile(s, q), quantile(s, r)
		if low < slices.Min(s) || high > slices.Max(s) || low > high+1e-9 {
			t.Fatalf("quantile(%v)=%v, quantile(%v)=%v of %v", q, low, r, high, s)
		}
	})
}

func TestRatioOfMedians(t *testing.T) {
	a, b := []float64{1, 2, 3, 4, 5}, []float64{10, 20, 30, 40, 50}
	got := ratioOfMedians(a, b)
	// a is a tenth of b in every round, so no drawing of rounds can differ.
	for name, v := range map[string]float64{"value": got.Value, "low": got.Low, "high": got.High} {
		if math.Abs(v-0.1) > 1e-9 {
			t.Errorf("%s = %v, want 0.1", name, v)
		}
	}
}

func TestRatioOfMediansWithNoise(t *testing.T) {
	a, b := make([]float64, 60), make([]float64, 60)
	for i := range a {
		a[i] = 4 + float64(i*7%11)/10
		b[i] = 10 + float64(i*5%13)/5
	}
	got := ratioOfMedians(a, b)
	if got.Low >= got.Value || got.High <= got.Value {
		t.Errorf("interval %v to %v does not enclose %v", got.Low, got.High, got.Value)
	}
	if got.High-got.Low > 0.1 {
		t.Errorf("interval %v to %v: wider than noise of 10 %% in 60 rounds can make it", got.Low, got.High)
	}
	if again := ratioOfMedians(a, b); again != got {
		t.Errorf("the same samples gave %v and then %v", got, again)
	}
}

// One wild round out of many must not move the ratio: that is why it is one of
// medians.
func TestRatioOfMediansIgnoresAnOutlier(t *testing.T) {
	a, b := slices.Repeat([]float64{3}, 60), slices.Repeat([]float64{12}, 60)
	a[17] = 900
	if got := ratioOfMedians(a, b); got.Value != 0.25 || got.High > 0.2501 {
		t.Errorf("got %+v, want 0.25", got)
	}
}

func TestRatioOfOneRoundHasNoSpread(t *testing.T) {
	if got := ratioOfMedians([]float64{3}, []float64{6}); got != exact(0.5) {
		t.Errorf("got %+v, want exactly 0.5", got)
	}
}

// The interval always encloses nothing outside the extremes of what rounds can
// give, and is ordered.
func TestRatioOfMediansProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := positive.Draw(t, "a")
		b := rapid.SliceOfN(rapid.Float64Range(0.1, 1000), len(a), len(a)).Draw(t, "b")
		got := ratioOfMedians(a, b)
		least, most := slices.Min(a)/slices.Max(b), slices.Max(a)/slices.Min(b)
		if got.Low > got.High || got.Low < least-1e-9 || got.High > most+1e-9 {
			t.Fatalf("%+v: want within %v to %v", got, least, most)
		}
	})
}

func TestSummarize(t *testing.T) {
	got := summarize(series(101))
	if want := (summary{N: 101, P25: 25, P50: 50, P75: 75, P99: 99}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
