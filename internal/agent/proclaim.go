// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft.dev/weft/internal/install"
	"weft.dev/weft/internal/registry"
)

// proclaimInterval is how often the runtime's configuration is seen to.
const proclaimInterval = 5 * time.Second

// proclaim tells runtime and cluster that pods can be attached, once they can:
// the network configuration last of all, because with it the runtime starts to
// send pods. It is put back if somebody removes it, and stays when the agent
// stops, because the pods do.
func (a *Agent) proclaim(ctx context.Context, now time.Time) {
	if !a.running || !a.applied || *a.unready.Load() != "" {
		return
	}
	unmarked := a.inputs.node != nil && a.inputs.node.Unmarked && a.cluster.pods != nil
	if now.Sub(a.looked.proclaimed) < proclaimInterval && !unmarked || !a.proclaiming.due(now) {
		return
	}
	a.looked.proclaimed = now
	err := a.writeConflist()
	if err == nil && unmarked {
		ctx, cancel := context.WithTimeout(ctx, lookupPatience)
		defer cancel()
		if err = a.cluster.pods.MarkReady(ctx); err != nil {
			err = fmt.Errorf("mark Node %s as ready: %w", a.cluster.node, err)
		}
	}
	a.proclaiming.done(now, err)
	a.unproclaimed.note(a.log, "readiness not told", err)
	a.proclaimed.Store(err == nil)
}

// writeConflist writes the runtime's configuration, and looks whether the
// runtime will take it.
func (a *Agent) writeConflist() error {
	c := a.inputs.config.CNI
	if c == nil {
		return nil
	}
	changed, err := install.WriteConflist(c.ConfFile, install.Conflist(*c))
	if err != nil {
		return err
	}
	if changed {
		a.log.Info("network configuration written", "file", c.ConfFile)
	}
	// cni.confFile may have changed, also while no agent ran.
	removed, err := install.RemoveFormer(*c)
	for _, name := range removed {
		a.log.Info("network configuration of a former name removed", "file", name, "now", c.ConfFile)
	}
	if err != nil {
		return err
	}
	earlier, foreign, err := install.Rivals(c.ConfFile)
	var rivals error
	if len(earlier) > 0 {
		rivals = fmt.Errorf("the runtime uses %s instead of %s, because its name comes first; remove it",
			strings.Join(earlier, ", "), c.ConfFile)
	}
	if rivals != nil && a.rivals.now() == nil {
		a.tellNode("ForeignNetworkConfiguration", rivals.Error())
	}
	a.foreign.Store(&foreign)
	a.rivals.note(a.log, "pods get another network", rivals)
	return err
}

// tellNode writes an Event about this node.
func (a *Agent) tellNode(reason, message string) {
	if a.cluster != nil && a.cluster.pods != nil {
		a.cluster.pods.Report(registry.Event{Warning: true, Reason: reason, Message: message})
	}
}

// alive is what /healthz asks: whether the agent still decides.
func (a *Agent) alive() error {
	if since := time.Since(time.Unix(0, a.passed.Load())); since > stuck {
		return fmt.Errorf("the agent has decided nothing for %s", since.Round(time.Second))
	}
	return nil
}

// stuck is how long a pass may take at most: an API server that does not answer
// is given up earlier.
const stuck = 2 * time.Minute

// ready is what /readyz asks: whether pods can be attached, and the runtime has
// been told.
func (a *Agent) ready() error {
	if why := *a.unready.Load(); why != "" {
		return errors.New(why)
	}
	if !a.proclaimed.Load() {
		if err := a.unproclaimed.now(); err != nil {
			return err
		}
		return errors.New("the node's own objects are not in place yet")
	}
	return nil
}
