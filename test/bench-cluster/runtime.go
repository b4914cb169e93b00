// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// timer is a histogram's sum and count: how long in seconds, how often.
type timer struct {
	Sum   float64
	Count int
}

// runtimeTimes are containerd's metrics of pods' networks.
type runtimeTimes struct {
	Network, SetUp, TearDown timer
	Errors                   int
}

// Names in containerd, which ends the second one in the unit twice.
const (
	networkMetric   = "containerd_cri_sandbox_create_network_seconds"
	operationMetric = "containerd_cri_network_plugin_operations_duration_seconds_seconds"
	errorsMetric    = "containerd_cri_network_plugin_operations_errors_total"
	operationLabel  = "operation_type"
	setUp, tearDown = "set_up_pod", "tear_down_pod"
)

func (c *contender) runtime(ctx context.Context) (runtimeTimes, error) {
	text, err := c.node.Metrics(ctx)
	if err != nil {
		return runtimeTimes{}, fmt.Errorf("read containerd's metrics: %w", err)
	}
	return parseRuntime(text)
}

// parseRuntime reads the text format of Prometheus. What has not happened yet is
// absent, and zero.
func parseRuntime(text string) (runtimeTimes, error) {
	var t runtimeTimes
	families, err := parseMetrics(text)
	if err != nil {
		return t, fmt.Errorf("read containerd's metrics: %w", err)
	}
	for _, m := range families[networkMetric].GetMetric() {
		t.Network = timer{m.GetHistogram().GetSampleSum(), int(m.GetHistogram().GetSampleCount())}
	}
	for _, m := range families[operationMetric].GetMetric() {
		one := timer{m.GetHistogram().GetSampleSum(), int(m.GetHistogram().GetSampleCount())}
		for _, l := range m.GetLabel() {
			switch {
			case l.GetName() != operationLabel:
			case l.GetValue() == setUp:
				t.SetUp = one
			case l.GetValue() == tearDown:
				t.TearDown = one
			}
		}
	}
	for _, m := range families[errorsMetric].GetMetric() {
		t.Errors += int(m.GetCounter().GetValue())
	}
	return t, nil
}

// since returns the means in milliseconds over what happened after before, which
// has to be one set-up per pod and no error.
func (t runtimeTimes) since(before runtimeTimes, pods int) (network, up, down float64, err error) {
	if t.Errors != before.Errors {
		return 0, 0, 0, fmt.Errorf("compare containerd's metrics: %d calls of the plugins failed; its log has why", t.Errors-before.Errors)
	}
	mean := func(of func(runtimeTimes) timer, what string, exactly bool) float64 {
		then, now := of(before), of(t)
		count := now.Count - then.Count
		if count < pods || exactly && count > pods {
			err = fmt.Errorf("compare containerd's metrics: expected %d times %s, found %d", pods, what, count)
			return 0
		}
		return (now.Sum - then.Sum) / float64(count) * 1000
	}
	network = mean(func(t runtimeTimes) timer { return t.Network }, "the creation of a network", true)
	up = mean(func(t runtimeTimes) timer { return t.SetUp }, setUp, true)
	// The kubelet may stop a sandbox more than once.
	down = mean(func(t runtimeTimes) timer { return t.TearDown }, tearDown, false)
	return network, up, down, err
}
