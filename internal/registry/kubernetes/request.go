// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/registry"
)

// requestTimeout bounds a request with its repetitions. An ADD that waits for
// one must end before the runtime gives up.
const requestTimeout = 10 * time.Second

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 5 * time.Second

// refused reports whether a request surely did nothing, and may do something
// the next time.
func refused(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}

// transient reports whether a request may succeed the next time; it may have
// done so this time.
func transient(err error) bool {
	return refused(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// send does a request, again while that makes sense, and returns what came back.
// do must make a new request every time.
func send(ctx context.Context, again func(error) bool, do func() *rest.Request) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pauses := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5}
	for {
		// The client's own repetitions would not ask whether that makes sense.
		object, err := do().MaxRetries(0).Do(ctx).Get()
		if err == nil || !again(err) || pauses.Steps < 1 {
			return object, err
		}
		pause := pauses.Step()
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			pause = min(max(pause, time.Duration(seconds)*time.Second), maxRetryAfter)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// write sends an object of Weft's kinds and tells the feed what came back.
func (r *Registry) write(ctx context.Context, f followed, again func(error) bool, verb func() *rest.Request, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	answer, err := send(ctx, again, func() *rest.Request {
		return verb().Resource(f.resource).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	})
	if err != nil {
		return err
	}
	if all := r.feeds.Load(); all != nil {
		if i, err := f.item(answer); err == nil {
			all.byKind[f.kind].wrote(i)
		}
	}
	return nil
}

// created translates the outcome of a create.
func created(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return registry.ErrExists
	}
	return err
}

// about says which object an error is of.
func about(kind registry.Kind, name, verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrExists), errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrGone):
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return fmt.Errorf("%s %s %s: %w", verb, kind, name, withoutURL(err))
}

// withoutURL leaves what a person wants to know of a failed connection: the URL
// of a watch is longer than everything else.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
