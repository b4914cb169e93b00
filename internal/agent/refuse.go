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

// exhaustedPoolError says that a pool has no free address for this node.
type exhaustedPoolError struct {
	node, pool string
	waiting    []string // why the node lacks blocks, of all pools
}

func (e *exhaustedPoolError) Error() string {
	var why []string
	for _, w := range e.waiting {
		if strings.Contains(w, "IPPool "+e.pool) {
			why = append(why, w)
		}
	}
	if len(why) == 0 {
		why = append(why, "the block that it asks for is not there yet")
	}
	return fmt.Sprintf("node %s has no free address of IPPool %s: %s; delete pods that use the pool, or add another one",
		e.node, e.pool, strings.Join(why, "; "))
}

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
