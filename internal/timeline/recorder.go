// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft.dev/weft/internal/core/cluster"
)

// patience is how long a pod may take from its first ADD until it is ready
// before its start is exported as it is.
const patience = 2 * time.Minute

// Recorder keeps the last calls, and what is known of their pods. It is safe
// for concurrent use.
type Recorder struct {
	exporter *Exporter // nil: nothing is exported
	size     int

	mu    sync.Mutex
	calls []*Call          // oldest first
	lives map[string]*life // by life.id
	names map[string]*life // the present pod of that namespace and name
}

// life is one pod, or one sandbox that nobody said the pod of.
type life struct {
	id       string // UID; name or container id where there is none
	pod, uid string

	created, scheduled time.Time // whole seconds
	watched            time.Time // first seen
	addresses          []netip.Addr
	addressed          time.Time // when addresses was first seen
	readySince         int64     // as the status says
	ready              time.Time // when that was seen; zero: it is not ready
	gone               time.Time

	kept  int         // of its calls, those in Recorder.calls
	first *Call       // the first ADD
	last  *Call       // the last ADD that was answered
	added *Call       // the last of them that succeeded
	timer *time.Timer // ends patience
	told  bool        // its start is exported, or never will be
}

// New returns a Recorder that keeps so many calls. What is complete goes to e,
// which may be nil.
func New(size int, e *Exporter) *Recorder {
	return &Recorder{exporter: e, size: size, lives: map[string]*life{}, names: map[string]*life{}}
}

// Pod takes in a state of a pod of this node that the watch brought at that
// time. Pods in the host's network are of no interest.
func (r *Recorder) Pod(p cluster.Pod, at time.Time) {
	if p.HostNetwork {
		return
	}
	r.export(func() (done []podStart) {
		if l := r.names[p.Key()]; l != nil && l.uid != "" && l.uid != p.UID {
			done = r.end(l, at) // its namesake
		}
		l := r.life(p.UID, p.Key(), "")
		r.names[p.Key()] = l
		l.take(p, at)
		if l.readyAfterADD() {
			done = append(done, r.tell(l)...)
		}
		return done
	})
}

// take takes in a state.
func (l *life) take(p cluster.Pod, at time.Time) {
	l.gone = time.Time{} // if it was, that was a mistake of the watch
	l.created, l.scheduled = unix(p.Created), unix(p.Scheduled)
	if l.watched.IsZero() {
		l.watched = at
	}
	if len(p.Addresses) > 0 && !slices.Equal(p.Addresses, l.addresses) {
		l.addresses, l.addressed = slices.Clone(p.Addresses), at
	}
	if p.Ready == l.readySince {
		return
	}
	l.readySince, l.ready = p.Ready, time.Time{}
	if p.Ready != 0 {
		l.ready = at
	}
}

// readyAfterADD reports whether the pod is ready in the sandbox that it has.
func (l *life) readyAfterADD() bool {
	return !l.ready.IsZero() && l.added != nil && !l.ready.Before(l.added.ended)
}

// Gone takes in that the watch has the pod no more. pod is "namespace/name".
func (r *Recorder) Gone(pod string, at time.Time) {
	r.export(func() []podStart {
		// Of one that was never there, the runtime may be ahead of the watch.
		if l := r.names[pod]; l != nil && !l.watched.IsZero() {
			return r.end(l, at)
		}
		return nil
	})
}

// Close ends all waiting: what is not complete is not exported any more. The
// Exporter is the caller's to close, after that.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lives {
		l.told = true
		l.stopTimer()
	}
}

// export changes something under the lock, and exports what is complete by
// that, without it.
func (r *Recorder) export(change func() []podStart) {
	r.mu.Lock()
	done := change()
	r.mu.Unlock()
	if r.exporter == nil {
		return
	}
	for _, s := range done {
		r.exporter.start(s)
	}
}

// end takes a pod for gone.
func (r *Recorder) end(l *life, at time.Time) []podStart {
	l.gone = at
	done := r.tell(l)
	delete(r.names, l.pod)
	r.forget(l)
	return done
}

// life returns what is known of a pod, by the best name there is.
func (r *Recorder) life(uid, pod, container string) *life {
	if l := r.lives[uid]; l != nil && uid != "" {
		return l
	}
	present := r.names[pod]
	if present != nil && (uid == "" || present.uid == "") {
		if uid != "" { // the runtime did not say it, the watch does
			delete(r.lives, present.id)
			present.id, present.uid = uid, uid
			r.lives[uid] = present
		}
		return present
	}
	id := cmp.Or(uid, pod, container)
	if l := r.lives[id]; l != nil && l.gone.IsZero() {
		return l
	}
	l := &life{id: id, pod: pod, uid: uid}
	r.lives[id] = l
	if pod != "" && present == nil { // the watch says when a namesake is gone
		r.names[pod] = l
	}
	return l
}

// forget drops a pod that neither the watch nor a call that is kept has.
func (r *Recorder) forget(l *life) {
	if l.kept > 0 || !l.watched.IsZero() && l.gone.IsZero() {
		return
	}
	l.stopTimer()
	if r.lives[l.id] == l {
		delete(r.lives, l.id)
	}
	if r.names[l.pod] == l {
		delete(r.names, l.pod)
	}
}

// tell returns the start of a pod that has had an ADD here, once.
func (r *Recorder) tell(l *life) []podStart {
	if l.told || l.first == nil {
		return nil
	}
	l.told = true
	l.stopTimer()
	return []podStart{l.start(time.Now())}
}

func (l *life) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

func unix(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
