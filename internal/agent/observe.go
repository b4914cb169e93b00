// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/metrics"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/timeline"
	"weft.dev/weft/internal/wire"
)

// courses is how many calls the agent remembers the course of.
const courses = 512

// trace starts to record the course of calls, and to export it if the
// configuration asks for that.
func (a *Agent) trace(ctx context.Context) (err error) {
	c := a.inputs.config
	if c.Tracing != nil {
		a.exporter, err = timeline.Export(ctx, c.Tracing.Endpoint, a.version, c.NodeName, a.log)
	}
	a.timeline = timeline.New(courses, a.exporter)
	return err
}

// answerHTTP serves metrics and probes until ctx ends.
func (a *Agent) answerHTTP(ctx context.Context, address string) {
	if err := a.metrics.Serve(ctx, address, metrics.Health{Live: a.alive, Ready: a.ready}, a.log); err != nil {
		a.stop(err)
	}
}

// watchPods notes what becomes of this node's pods.
func (a *Agent) watchPods(ctx context.Context) {
	changes := a.cluster.objects.Subscribe(registry.Pod)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes.C:
		}
		now := time.Now()
		for _, k := range changes.Take() {
			var p cluster.Pod
			var there bool
			a.cluster.objects.View(func(s *registry.State) { p, there = s.Pods[k.Name] })
			switch {
			case !there:
				a.timeline.Gone(k.Name, now)
			case p.Node == a.cluster.node:
				a.timeline.Pod(p, now)
			}
		}
	}
}

// begun notes that a call has begun, in the pod's timeline.
func (a *Agent) begun(r wire.Request, call cni.Call, at time.Time) *timeline.Call {
	start := timeline.Start{
		Verb: call.Command, ContainerID: call.ContainerID, Received: at, TraceParent: r.TraceParent,
	}
	if r.Started != 0 {
		start.Shim = time.Unix(0, r.Started)
	}
	if args, err := cni.ParseArgs(call.Args); err == nil {
		start.Pod, start.UID = args.Pod.String(), args.Pod.UID
	}
	return a.timeline.Begin(start)
}

// ended notes how a call ended.
func (a *Agent) ended(course *timeline.Call, call cni.Call, took time.Duration, cerr *cni.Error) {
	var code cni.Code
	var err error // a nil *cni.Error would be none
	if cerr != nil {
		code, err = cerr.Code, cerr
	}
	a.metrics.Call(call.Command, uint(code), took)
	course.End(err)
}

// timelines answers the question for the course of calls.
func (a *Agent) timelines() wire.Response {
	raw, err := json.Marshal(a.timeline.Timelines(""))
	if err != nil {
		return wire.Response{Output: cni.AsError(err).Encode(cni.NewestVersion), Failed: true}
	}
	return wire.Response{Output: raw}
}
