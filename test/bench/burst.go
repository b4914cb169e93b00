// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// The burst of the targets: a node that starts and stops many pods at once.
const (
	burstPods        = 120
	burstConcurrency = 8
)

// rates are calls per second over one burst.
type rates struct {
	Add         float64 // until the last ADD returned
	DelReturned float64 // until the last DEL returned
	DelSettled  float64 // until the last interface was gone and the last address free
}

// burst attaches all sandboxes and detaches them again, some at a time.
func burst(ctx context.Context, c contender, sandboxes []*sandbox) (rates, error) {
	containers := make([]string, len(sandboxes))
	for i := range containers {
		containers[i] = newContainerID()
	}
	held, err := c.Held()
	if err != nil {
		return rates{}, err
	}
	links, err := hostLinks()
	if err != nil {
		return rates{}, err
	}
	var r rates
	per := func(start time.Time) float64 { return float64(len(sandboxes)) / time.Since(start).Seconds() }

	start := time.Now()
	err = each(sandboxes, burstConcurrency, func(i int) error {
		_, err := c.Attach(ctx, sandboxes[i], containers[i])
		return err
	})
	r.Add = per(start)
	if err != nil {
		return r, err
	}
	start = time.Now()
	err = each(sandboxes, burstConcurrency, func(i int) error {
		_, err := c.Detach(ctx, sandboxes[i], containers[i])
		return err
	})
	r.DelReturned = per(start)
	if err != nil {
		return r, err
	}
	err = await(settleLimit, c.Name()+": all interfaces gone, all addresses free", func() (bool, error) {
		// The cheaper question first: asking takes time from who is at work.
		if now, err := hostLinks(); err != nil || now > links {
			return false, err
		}
		now, err := c.Held()
		return now == held, err
	})
	r.DelSettled = per(start)
	return r, err
}

// hostLinks counts the interfaces of the namespace that plays the host. A
// bridge that the first ADD makes, and nobody removes, is to be there before.
func hostLinks() (int, error) {
	entries, err := os.ReadDir("/sys/class/net")
	return len(entries), err
}

// each calls f for every index, at most concurrency at a time, until one fails.
func each(sandboxes []*sandbox, concurrency int, f func(i int) error) error {
	work := make(chan int)
	failed := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for i := range work {
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					once.Do(func() { close(failed) })
					return
				}
			}
		})
	}
feed:
	for i := range sandboxes {
		select {
		case work <- i:
		case <-failed:
			break feed
		}
	}
	close(work)
	workers.Wait()
	return errors.Join(errs...)
}

// bursts repeats the burst of every contender in turns.
func bursts(ctx context.Context, contenders []contender, sandboxes []*sandbox, repeats int) (map[string][]rates, error) {
	all := map[string][]rates{}
	for repeat := range repeats {
		for _, i := range order(len(contenders), repeat) {
			c := contenders[i]
			r, err := burst(ctx, c, sandboxes)
			if err != nil {
				return all, err
			}
			all[c.Name()] = append(all[c.Name()], r)
		}
	}
	return all, nil
}

func ratesOf(rs []rates, quantity func(rates) float64) []float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = quantity(r)
	}
	return values
}
