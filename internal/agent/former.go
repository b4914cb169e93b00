// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
)

// releasePatience is how long an ADD waits for its pod's former sandbox to let
// go of an address or a port. The kubelet gives containers two seconds to end
// even where the pod is deleted with none, and repeats a refused ADD only after
// some ten.
const releasePatience = 5 * time.Second

// awaitFormer waits while a former sandbox of the same pod has an address or a
// port that this one is to have: a pod that is deleted by force is made anew
// before the DEL of the old sandbox has come. It reports whether it waited: much
// may have changed then. What is still held afterwards the engine refuses.
func (e *errand) awaitFormer(want []netip.Addr, ports []attach.Port) (waited bool) {
	if e.verb != cni.Add || len(want)+len(ports) == 0 {
		return false
	}
	start := time.Now()
	patience := releasePatience
	if end, limited := e.ctx.Deadline(); limited {
		patience = min(patience, end.Sub(start)/2) // the rest of the call takes time too
	}
	for e.formerHas(e.engine.Contended(e.ctx, e.key, want, ports)) {
		if e.ctx.Err() != nil || time.Since(start) >= patience {
			break
		}
		waited = true
		pause(e.ctx, breath)
	}
	if waited {
		e.log.Info("waited for the pod's former sandbox", "pod", e.pod.Key(), "container", e.key.ContainerID,
			"ms", time.Since(start).Milliseconds())
	}
	return waited
}

// formerHas reports whether the error says that another sandbox of this pod's
// namesake has what is asked for: its DEL is on its way.
func (e *errand) formerHas(err error) bool {
	var held *engine.HeldError
	var port *facts.PortError
	switch {
	case errors.As(err, &held):
		return e.succeeds(held.Holder, held.Pod)
	case errors.As(err, &port):
		return e.succeeds(port.Owner, port.Pod)
	}
	return false
}

func (e *errand) succeeds(k attach.Key, p attach.Pod) bool {
	return p.Name != "" && p.Namespace == e.pod.Namespace && p.Name == e.pod.Name && k.ContainerID != e.key.ContainerID
}
