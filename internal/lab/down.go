// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Down removes a lab, whatever state it is in, and everything that belongs to
// it. A lab that does not exist is no error. Where a step fails the others are
// still taken; the error then tells what failed.
func (h Host) Down(ctx context.Context, name string) error {
	lock, err := h.lock(name, changing)
	if notFound := (*NotFoundError)(nil); errors.As(err, &notFound) {
		h.say("there is no lab %q", name)
		return nil
	}
	if err != nil {
		return err
	}
	l := &lab{Host: h, l: h.layout(name), lock: lock}
	defer l.close()
	return l.remove(ctx)
}

// remove takes the lab down in the order in which a machine shuts down: pods,
// while their node can still serve DEL; the agents and what else runs in the
// lab, politely; the namespaces, with which the kernel removes links, addresses,
// routes and rules; last the files.
//
// It relies on no file of the lab being complete: mounts come from the mount
// table, processes from the namespaces.
func (l *lab) remove(ctx context.Context) error {
	var errs []error
	if err := l.removePods(ctx); err != nil {
		errs = append(errs, err)
	}
	machines, err := listNetns(l.l)
	errs = append(errs, err)
	var paths []string
	for _, name := range machines {
		paths = append(paths, l.l.netns(name))
	}
	l.say("stop what runs in %d network namespaces", len(paths))
	errs = append(errs, stopAllIn(paths...))
	l.say("unmount %d network namespaces", len(paths))
	if err := unmountBelow(string(l.l)); err != nil {
		// Removing files below a mount would reach into something else.
		return errors.Join(append(errs, err)...)
	}
	l.say("remove %s", string(l.l))
	if err := os.RemoveAll(string(l.l)); err != nil {
		errs = append(errs, fmt.Errorf("remove lab directory: %w", err))
	}
	// The root goes with its last lab; while it holds another, this fails.
	_ = os.Remove(l.Root)
	return errors.Join(errs...)
}

// removePods deletes every pod by the CNI verb, so that Down also exercises
// what a runtime does when a node drains. In a lab that is half made there is
// no network to ask, nor a pod.
func (l *lab) removePods(ctx context.Context) error {
	if incomplete := (*IncompleteError)(nil); errors.As(l.load(), &incomplete) {
		return nil
	}
	pods, err := l.pods()
	errs := []error{err}
	for _, p := range pods {
		errs = append(errs, l.deletePod(ctx, p))
	}
	return errors.Join(errs...)
}

// listNetns returns the names of the files in the lab's netns directory, which
// after a crash can include one that is no namespace yet.
func listNetns(l layout) ([]string, error) {
	entries, err := os.ReadDir(l.netnsDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
