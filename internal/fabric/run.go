// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"log/slog"
	"time"

	"weft.dev/weft/internal/reconcile"
)

// Run makes passes until ctx ends: whenever something calls for one, and when
// one is due.
func (f *Fabric) Run(ctx context.Context, log *slog.Logger) {
	var changes <-chan struct{} // never, without a store
	if f.sub != nil {
		changes = f.sub.C
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-changes:
		case <-timer.C:
		}
		pass := f.step(time.Now())
		report(log, pass)
		if pass.Next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(pass.Next))
		}
	}
}

// report logs what changed, and each failure once, however often it is tried
// again; likewise what only has to wait.
func report(log *slog.Logger, p reconcile.Pass) {
	const most = 10 // of either that are told one by one
	for _, c := range p.Changes {
		log.Info("network changed", "kind", c.Kind,
			"added", c.Added, "changed", c.Changed, "deleted", c.Deleted, "recovered", c.Recovered)
	}
	for _, o := range p.Awaiting[:min(len(p.Awaiting), most)] {
		log.Info("network operation waits", "object", o.Object, "verb", o.Verb, "for", o.Err)
	}
	for _, o := range p.Failed[:min(len(p.Failed), most)] {
		log.Warn("network operation fails, retrying", "object", o.Object, "verb", o.Verb, "err", o.Err)
	}
	if more := len(p.Failed) - most; more > 0 {
		log.Warn("more network operations fail, retrying", "count", more)
	}
	if more := len(p.Awaiting) - most; more > 0 {
		log.Info("more network operations wait", "count", more)
	}
}
