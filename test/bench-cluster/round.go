// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// round is what one cluster did with one batch.
type round struct {
	Pods int

	// Seconds from creation to Ready, of every pod: by this process's clock, and
	// by the objects' own times.
	Ready, Stamped []float64

	// By containerd's metrics, the mean over the pods in milliseconds.
	Network  float64 // network namespace, loopback and plugins: all that RunPodSandbox does for the network
	SetUp    float64 // of that, the plugins
	TearDown float64 // the plugins, in StopPodSandbox

	Gone     float64 // seconds from the request to delete all until the last was gone
	Requests requests
}

func (r round) String() string {
	return fmt.Sprintf("ready p50 %.2f s, p99 %.2f s; network %.1f ms, of it plugins %.1f ms; tear down %.1f ms; gone %.1f s; %.2f requests per pod",
		quantile(r.Ready, 0.5), quantile(r.Ready, 0.99), r.Network, r.SetUp, r.TearDown, r.Gone, r.perPod(r.Requests.total()))
}

func (r round) perPod(count int) float64 { return float64(count) / float64(r.Pods) }

// round starts and stops a batch.
func (c *contender) round(ctx context.Context, name string, pods int) (round, error) {
	r := round{Pods: pods}
	asked, err := c.requests()
	if err != nil {
		return r, err
	}
	before, err := c.runtime(ctx)
	if err != nil {
		return r, err
	}
	b, err := newBatch(ctx, c.Client(), name, pods)
	if err != nil {
		return r, err
	}
	defer b.watch.Stop()
	if err := b.start(ctx, c.node.Name); err != nil {
		return r, err
	}
	r.Ready, r.Stamped = b.latencies(), b.stamped
	deleted := time.Now()
	if err := b.stop(ctx); err != nil {
		return r, err
	}
	r.Gone = time.Since(deleted).Seconds()
	after, err := c.runtime(ctx)
	if err != nil {
		return r, err
	}
	if r.Network, r.SetUp, r.TearDown, err = after.since(before, pods); err != nil {
		return r, err
	}
	// What the agent does for pods that are gone already belongs to them, too.
	if err := rest(ctx); err != nil {
		return r, err
	}
	now, err := c.requests()
	r.Requests = now.since(asked)
	return r, err
}
