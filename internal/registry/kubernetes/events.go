// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/registry"
)

// Limits of what is reported.
const (
	sameEvent      = 5 * time.Minute // the same news within that time is one Event, with a count
	eventQueue     = 64
	eventsPerMin   = 30
	eventsAtOnce   = 20
	eventTimeout   = 5 * time.Second
	maxEventText   = 1024 // what the API server takes
	maxRemembered  = 512
	eventComponent = "weft"
)

// events sends what is reported, one after the other.
type events struct {
	registry *Registry
	queue    chan news
	limit    *rate.Limiter
	recent   map[eventKey]*sent // of the last sameEvent
}

// news is an Event when it was reported.
type news struct {
	registry.Event
	at time.Time
}

// eventKey tells one piece of news from another.
type eventKey struct {
	object          corev1.ObjectReference
	warning         bool
	reason, message string
}

// sent is an Event that there is.
type sent struct {
	namespace, name string
	count           int32
	first           time.Time
}

func newEvents(r *Registry) *events {
	return &events{
		registry: r, queue: make(chan news, eventQueue), recent: map[eventKey]*sent{},
		limit: rate.NewLimiter(rate.Every(time.Minute/eventsPerMin), eventsAtOnce),
	}
}

// Report implements registry.Pods. What is reported while Run does not run waits
// for it.
func (r *Registry) Report(e registry.Event) {
	select {
	case r.events.queue <- news{e, time.Now()}:
	default:
		r.log.Debug("event dropped: there are too many", "reason", e.Reason, "pod", e.Pod.Key())
	}
}

// run sends until ctx ends.
func (q *events) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-q.queue:
			if err := q.send(ctx, n); err != nil && ctx.Err() == nil {
				q.registry.log.Debug("event not sent", "reason", n.Reason, "pod", n.Pod.Key(), "error", err)
			}
		}
	}
}

// send creates an Event, or counts it up if there is one that says the same.
func (q *events) send(ctx context.Context, n news) error {
	q.forget(n.at)
	key := eventKey{q.object(n), n.Warning, n.Reason, clip(n.Message)}
	known := q.recent[key]
	if known != nil {
		known.count++ // even if that is not told now: the next time tells it
	}
	if !q.limit.Allow() {
		return fmt.Errorf("there are more than %d in a minute", eventsPerMin)
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if known != nil {
		err := q.count(ctx, known, n.at)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return q.create(ctx, key, n.at)
}

func (q *events) create(ctx context.Context, key eventKey, at time.Time) error {
	namespace := cmp.Or(key.object.Namespace, metav1.NamespaceDefault) // where those of nodes are
	kind, now := corev1.EventTypeNormal, metav1.NewTime(at)
	if key.warning {
		kind = corev1.EventTypeWarning
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: eventName(key.object.Name, at)},
		InvolvedObject: key.object, Reason: key.reason, Message: key.message, Type: kind,
		Source:         corev1.EventSource{Component: eventComponent, Host: q.registry.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: eventComponent, ReportingInstance: q.registry.node,
	}
	_, err := send(ctx, refused, func() *rest.Request {
		return q.registry.core.Post().Namespace(namespace).Resource("events").Body(event)
	})
	if err == nil && len(q.recent) < maxRemembered {
		q.recent[key] = &sent{namespace, event.Name, 1, at}
	}
	return err
}

// eventName returns a name that no other Event has, and that is not too long for
// one.
func eventName(object string, at time.Time) string {
	const most = 253 - 1 - 16
	return fmt.Sprintf("%s.%x", strings.TrimRight(object[:min(len(object), most)], "-."), at.UnixNano())
}

func (q *events) count(ctx context.Context, s *sent, at time.Time) error {
	body, err := json.Marshal(map[string]any{"count": s.count, "lastTimestamp": metav1.NewTime(at)})
	if err != nil {
		return err
	}
	_, err = send(ctx, transient, func() *rest.Request {
		return q.registry.core.Patch(types.MergePatchType).Namespace(s.namespace).Resource("events").Name(s.name).Body(body)
	})
	return err
}

// forget drops what is too old to be counted up.
func (q *events) forget(now time.Time) {
	for key, s := range q.recent {
		if now.Sub(s.first) >= sameEvent {
			delete(q.recent, key)
		}
	}
}

// object returns what the news is about.
func (q *events) object(n news) corev1.ObjectReference {
	if n.Pod.Name != "" {
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: types.UID(n.Pod.UID)}
	}
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: q.registry.node}
	if all := q.registry.feeds.Load(); all != nil {
		all.store.View(func(s *registry.State) { node.UID = types.UID(s.Nodes[q.registry.node].UID) })
	}
	return node
}

// clip keeps a message as long as the API server takes it.
func clip(s string) string {
	if len(s) <= maxEventText {
		return s
	}
	return strings.ToValidUTF8(s[:maxEventText-len("…")], "") + "…"
}
