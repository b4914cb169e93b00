// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// item is what the reflector sees of an object, which is gone by then: its
// name, and its value.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, namespace, UID, resource version; of a bookmark its annotations

	value any
	err   error // why there is no value
}

// DeepCopyObject implements runtime.Object.
func (i *item) DeepCopyObject() runtime.Object {
	dup := *i
	i.DeepCopyInto(&dup.ObjectMeta)
	return &dup
}

// key returns the name, with the namespace if there is one.
func (i *item) key() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

type itemList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []runtime.Object
}

// DeepCopyObject implements runtime.Object.
func (l *itemList) DeepCopyObject() runtime.Object {
	dup := &itemList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&dup.ListMeta)
	for _, i := range l.Items {
		dup.Items = append(dup.Items, i.DeepCopyObject())
	}
	return dup
}

// item converts an object of the kind.
func (f followed) item(object runtime.Object) (*item, error) {
	i, err := headed(object)
	if err != nil {
		return nil, err
	}
	i.value, i.err = f.value(object)
	return i, nil
}

// headed returns an item without a value.
func headed(object runtime.Object) (*item, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	return &item{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
	}}, nil
}

// list converts a list, or a page of one.
func (f followed) list(from runtime.Object) (*itemList, error) {
	m, err := meta.ListAccessor(from)
	if err != nil {
		return nil, err
	}
	list := &itemList{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}}
	err = meta.EachListItem(from, func(object runtime.Object) error {
		i, err := f.item(object)
		list.Items = append(list.Items, i)
		return err
	})
	return list, err
}

// settled is how long a watch must go on without an error to be one: a server
// that has forgotten where it was to be resumed says so after it has begun.
const settled = time.Second

// stream is a watch whose objects are converted.
type stream struct {
	from    watch.Interface
	convert func(watch.Event) watch.Event
	report  func(error) // is told of an error in the stream, or by nil that it has settled
	out     chan watch.Event
	once    sync.Once
	done    chan struct{}
}

func newStream(from watch.Interface, convert func(watch.Event) watch.Event, report func(error)) *stream {
	s := &stream{from: from, convert: convert, report: report, out: make(chan watch.Event), done: make(chan struct{})}
	go s.run()
	return s
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.once.Do(func() { close(s.done) })
	s.from.Stop()
}

func (s *stream) run() {
	defer close(s.out)
	quiet := time.NewTimer(settled)
	defer quiet.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-quiet.C:
			s.report(nil)
		case e, open := <-s.from.ResultChan():
			if !open {
				return
			}
			if e.Type == watch.Error {
				quiet.Stop()
				s.report(apierrors.FromObject(e.Object))
			}
			select {
			case s.out <- s.convert(e):
			case <-s.done:
				return
			}
		}
	}
}

// event converts an event of a watch.
func (f followed) event(e watch.Event) watch.Event {
	var i *item
	var err error
	switch e.Type {
	case watch.Added, watch.Modified:
		i, err = f.item(e.Object)
	case watch.Deleted:
		i, err = headed(e.Object)
	case watch.Bookmark:
		if i, err = headed(e.Object); err == nil {
			m, _ := meta.Accessor(e.Object)
			i.Annotations = m.GetAnnotations() // one says that the first view is complete
		}
	default:
		return e // an error
	}
	if err != nil {
		return e // the reflector says what is wrong with it
	}
	e.Object = i
	return e
}
