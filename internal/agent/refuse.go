// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/registry"
)

// refuse turns what cannot be done into the runtime's error. What is no refusal
// is an obstacle that time removes: the registry is out of reach, or somebody
// else is at work.
func (e *errand) refuse(err error) *cni.Error {
	var refused *wish.RefusedError
	var known *cni.Error
	switch {
	case errors.As(err, &known):
		return cni.AsError(err)
	case !errors.As(err, &refused):
		return &cni.Error{Code: cni.CodeTryAgain, Msg: fmt.Sprintf("pod %s: %v", e.pod.Key(), err), Err: err}
	}
	return &cni.Error{Code: cni.CodeRefused, Msg: fmt.Sprintf("pod %s: %v", e.pod.Key(), err), Err: err}
}

// lament tells the pod's owner why it cannot start, where that is for him to
// mend. What comes right by itself the kubelet tells.
func (e *errand) lament(cerr *cni.Error) {
	if e.cluster == nil || e.cluster.pods == nil || e.pod.UID == "" {
		return
	}
	var refused *wish.RefusedError
	var used *ipam.InUseError
	var exhausted *ipam.ExhaustedError
	var pool *exhaustedPoolError
	var port *facts.PortError
	event := registry.Event{Pod: e.pod, Warning: true, Message: cerr.Error()}
	if key := "pod " + e.pod.Key(); !strings.HasPrefix(event.Message, key+":") && !strings.Contains(event.Message, "for "+key+":") {
		event.Message = key + ": " + event.Message
	}
	switch {
	case errors.As(cerr, &refused):
		event.Reason = refused.Reason
	case e.formerHas(cerr):
		return // that comes right by itself
	case errors.As(cerr, &used):
		event.Reason = wish.AddressInUse
	case errors.As(cerr, &exhausted), errors.As(cerr, &pool):
		event.Reason = "AddressesExhausted"
	case errors.As(cerr, &port):
		event.Reason = "PortInUse"
	default:
		return
	}
	e.cluster.pods.Report(event)
}
