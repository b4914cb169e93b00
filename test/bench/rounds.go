// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// run holds the samples of one interleaved run: per contender, and in each
// slice the samples in the order of the rounds.
type run struct {
	Adds, Dels map[string][]sample
}

// of extracts one quantity of a contender's samples, round by round.
func of(samples []sample, quantity func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, m := range samples {
		values[i] = quantity(m)
	}
	return values
}

func total(m sample) float64 { return m.Total }

func settled(m sample) float64 { return m.Settled }

// settleLimit bounds how long DEL may take to be really done.
const settleLimit = 10 * time.Second

// interleave lets every contender attach and detach its own sandbox once per
// round. The first warm rounds are not recorded.
func interleave(ctx context.Context, contenders []contender, sandboxes []*sandbox, rounds, warm int) (run, error) {
	r := run{Adds: map[string][]sample{}, Dels: map[string][]sample{}}
	for round := range warm + rounds {
		runtime.GC() // now, rather than in somebody's turn
		for _, i := range order(len(contenders), round) {
			c := contenders[i]
			add, del, err := turn(ctx, c, sandboxes[i])
			if err != nil {
				return r, err
			}
			if round >= warm {
				r.Adds[c.Name()] = append(r.Adds[c.Name()], add)
				r.Dels[c.Name()] = append(r.Dels[c.Name()], del)
			}
		}
	}
	return r, nil
}

// order shuffles the contenders, the same way in every run of the program, so
// that none always has the same ones before it.
func order(n, round int) []int {
	return rand.New(rand.NewPCG(uint64(n), uint64(round))).Perm(n)
}

// rest lets the machine come to itself before each timed call: what the kernel
// still does for the previous one (RCU callbacks, work queues) must hit nobody.
const rest = 20 * time.Millisecond

// turn is one ADD and one DEL of one contender, each seen to have happened.
// It ends when nothing of it is left to be done by anybody.
func turn(ctx context.Context, c contender, s *sandbox) (add, del sample, err error) {
	if err := ctx.Err(); err != nil {
		return add, del, err
	}
	container := newContainerID()
	before, err := c.Held()
	if err != nil {
		return add, del, err
	}
	time.Sleep(rest)
	if add, err = c.Attach(ctx, s, container); err != nil {
		return add, del, err
	}
	if ok, err := s.attached(); err != nil || !ok {
		return add, del, fmt.Errorf("%s: ADD succeeded, but the sandbox has no %s: %w", c.Name(), ifname, err)
	}
	time.Sleep(rest)
	start := time.Now()
	if del, err = c.Detach(ctx, s, container); err != nil {
		return add, del, err
	}
	err = await(settleLimit, c.Name()+": interface gone after DEL", func() (bool, error) {
		attached, err := s.attached()
		return !attached, err
	})
	if err != nil {
		return add, del, err
	}
	err = await(settleLimit, c.Name()+": address free after DEL", func() (bool, error) {
		held, err := c.Held()
		return held == before, err
	})
	del.Settled = millis(time.Since(start))
	return add, del, err
}

// newContainerID looks like one of containerd's.
func newContainerID() string {
	return fmt.Sprintf("%016x%016x%016x%016x", rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64())
}
