// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// podStart is how a pod came to be ready, or did not.
type podStart struct {
	pod, uid string
	container,
	traceParent string // of the first ADD

	created, scheduled time.Time // whole seconds; zero: not known
	first              time.Time // when the first ADD began
	answered           time.Time // when the last that succeeded was; zero: none did
	addressed, ready   time.Time // zero: not seen
	end                time.Time
	err                error // nil: it is ready, or nobody would say
}

// start sums up what is known by now.
func (l *life) start(now time.Time) podStart {
	s := podStart{
		pod: l.pod, uid: l.uid, container: l.first.ContainerID, traceParent: l.first.TraceParent,
		created: l.created, scheduled: l.scheduled, first: l.first.began(), end: now,
	}
	if l.added != nil {
		s.answered, s.container = l.added.ended, l.added.ContainerID
		if !l.addressed.Before(s.answered) {
			s.addressed = l.addressed
		}
	}
	switch {
	case l.readyAfterADD():
		s.ready, s.end = l.ready, l.ready
	case l.watched.IsZero():
		if l.last != nil {
			s.end = l.last.ended
			s.err = l.last.failure()
		}
	case !l.gone.IsZero():
		s.end, s.err = l.gone, errors.New("the pod was deleted before it was ready")
	default:
		s.err = fmt.Errorf("the pod was not ready %s after its first ADD", patience)
	}
	if s.err != nil && l.last != nil && l.added == nil {
		s.err = cmp.Or(l.last.failure(), s.err)
	}
	return s
}

// began is when the runtime executed the plugin, as far as that is known.
func (c *Call) began() time.Time {
	if c.Shim.IsZero() || c.Shim.After(c.Received) {
		return c.Received
	}
	return c.Shim
}

func (c *Call) failure() error {
	if c.result == "ok" {
		return nil
	}
	return errors.New(c.result)
}
