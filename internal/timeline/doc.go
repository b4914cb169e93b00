// SPDX-License-Identifier: Apache-2.0

// Package timeline records what happened when as a pod got its network, and
// exports it as OpenTelemetry spans.
//
// A Recorder is told of two things: the calls of the runtime as they go (Begin,
// Call.Mark, Call.End), and the states of this node's pods as the agent's watch
// brings them (Pod, Gone). It keeps the last calls in memory, for
// `weft pod trace`, and gives what is complete to an Exporter, if there is one.
//
// Times are of three clocks. What the agent and the shim note is of this node's,
// in nanoseconds. When a pod was created and scheduled is of the API server's
// and the scheduler's, in whole seconds. That addresses and readiness are in
// the pod's status is noted when the agent's watch brings it, which is later
// than it happened but of the clock that the rest is of.
//
// Recording must not cost a call anything: a Mark is a time under a mutex that
// nobody holds for longer than that, memory is bounded by the number of calls
// that are kept and of pods that the node has, and a span that the collector
// does not take in time is dropped.
//
// The spans of one pod are in one trace, whose id follows from the pod's UID,
// so that they find together whoever exports them, and after a restart of the
// agent too. Where the runtime traces, the spans of a call continue its trace
// instead and are linked with the pod's.
package timeline
