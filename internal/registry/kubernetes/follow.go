// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"weft.dev/weft/api/v1alpha1"
)

// Pauses between attempts to read a kind: they double, each drawn between one
// time and two times as long.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)

// listTimeout is for one page of a list.
const listTimeout = time.Minute

// follow keeps a feed up to date until ctx ends.
func (r *Registry) follow(ctx context.Context, f followed, into *feed, state *contact) {
	client := r.core
	if f.ours {
		client = r.weft
	}
	failed := func(verb string, err error) {
		if ctx.Err() == nil {
			state.failed(f.kind, f.explain(verb, err), time.Now())
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := f.page(ctx, client, options)
			if err != nil {
				failed("list", err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := f.watch(ctx, client, options)
			if err != nil {
				failed("watch", err)
				return nil, err
			}
			return newStream(w, f.event, func(err error) {
				switch {
				case err != nil:
					failed("watch", err)
				case options.SendInitialEvents == nil: // else the feed says when it has everything
					state.succeeded(f.kind, time.Now())
				}
			}), nil
		},
	}
	silent := klog.Logger{} // contact says what there is to say
	pause := wait.Backoff{Duration: firstPause, Cap: lastPause, Factor: 2, Jitter: 1, Steps: 10}
	reflector := cache.NewReflectorWithOptions(source, &item{}, into, cache.ReflectorOptions{
		Logger: &silent, Name: "weft " + f.resource, Backoff: &pause, Clock: clockUntil{clock.RealClock{}, ctx},
	})
	reflector.RunWithContext(klog.NewContext(ctx, silent))
}

// page reads a list, or a page of one.
func (f followed) page(ctx context.Context, client rest.Interface, options metav1.ListOptions) (*itemList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if options.ResourceVersion == "0" {
		options.ResourceVersion = "" // no answer from the past, see the package's comment
	}
	options.FieldSelector = f.only
	list, err := client.Get().Resource(f.resource).VersionedParams(&options, parameters).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	return f.list(list)
}

func (f followed) watch(ctx context.Context, client rest.Interface, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch, options.FieldSelector = true, f.only
	return client.Get().Resource(f.resource).VersionedParams(&options, parameters).Watch(ctx)
}

// errUndefined says that a kind of Weft is not installed.
var errUndefined = errors.New("the custom resource definition is not installed")

// explain says what could not be done, and what to do where that is known.
func (f followed) explain(verb string, err error) error {
	err = withoutURL(err)
	switch {
	case f.ours && apierrors.IsNotFound(err):
		return fmt.Errorf("%s.%s: %w; install those of Weft's chart, directory crds", f.resource, v1alpha1.Group, errUndefined)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s %s: the ClusterRole of Weft's chart is missing or older than this program: %w", verb, f.resource, err)
	}
	return fmt.Errorf("%s %s: %w", verb, f.resource, err)
}

// clockUntil is a clock whose timers end early when ctx does: the reflector
// waits between some attempts for nothing but its clock.
type clockUntil struct {
	clock.RealClock
	ctx context.Context
}

// After implements clock.Clock.
func (c clockUntil) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	timed, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(timed, func() {
		cancel()
		ch <- time.Now()
	})
	return ch
}
