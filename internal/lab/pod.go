// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Pod is one pod instance. The lab keeps it in a file, written before anything
// of the pod exists and again when ADD is done.
type Pod struct {
	Name        string         `json:"name"`
	Node        string         `json:"node"`
	ContainerID string         `json:"containerID"`         // 64 hexadecimal digits, a new one for each instance
	Requested   []netip.Addr   `json:"requested,omitempty"` // addresses asked for
	Addresses   []netip.Prefix `json:"addresses"`
	AddMillis   float64        `json:"addMillis"` // milliseconds of libcni's AddNetworkList; 0: ADD did not come to its end
}

// Header implements view.Row.
func (p Pod) Header() []string { return []string{"POD", "NODE", "ADDRESSES", "ADD", "CONTAINER"} }

// Cells implements view.Row.
func (p Pod) Cells() []string {
	return []string{p.Name, p.Node, hosts(p.Addresses), fmt.Sprintf("%.1f ms", p.AddMillis), fmt.Sprintf("%.12s", p.ContainerID)}
}

func (p Pod) complete() bool { return p.AddMillis > 0 }

// PodSpec is what AddPod is asked for.
type PodSpec struct {
	Name string
	Node string       // "" for the first node
	IPs  []netip.Addr // to request, at most one per subnet; none: the allocator chooses
}

// PodExistsError says that a pod has this name already. Complete is false for
// one whose ADD did not come to its end.
type PodExistsError struct {
	Name     string
	Complete bool
}

func (e *PodExistsError) Error() string {
	if !e.Complete {
		return fmt.Sprintf("pod %q is half made; `weft lab pod del %s` removes it", e.Name, e.Name)
	}
	return fmt.Sprintf("pod %q exists already", e.Name)
}

// NoPodError says that the lab has no pod of that name.
type NoPodError struct{ Name string }

func (e *NoPodError) Error() string { return fmt.Sprintf("pod %q does not exist", e.Name) }

// AddPod makes a pod: a namespace with lo up, and the network attached by CNI
// ADD. Where ADD fails the pod is removed, by CNI DEL first, as the
// specification asks of a runtime.
func (h Host) AddPod(ctx context.Context, name string, s PodSpec) (Pod, error) {
	if err := ValidatePodName(s.Name); err != nil {
		return Pod{}, err
	}
	l, err := h.open(name, changing)
	if err != nil {
		return Pod{}, err
	}
	defer l.close()
	var existing Pod
	switch err := readJSON(l.l.pod(s.Name), &existing); {
	case err == nil:
		return Pod{}, &PodExistsError{Name: s.Name, Complete: existing.complete()}
	case !errors.Is(err, os.ErrNotExist):
		return Pod{}, err
	}
	p, err := l.newPod(s)
	if err != nil {
		return Pod{}, err
	}
	if err := writeJSON(l.l.pod(p.Name), p); err != nil {
		return Pod{}, err
	}
	if err := l.attach(ctx, &p); err != nil {
		return Pod{}, errors.Join(fmt.Errorf("add pod %s: %w", p.Name, err), l.deletePod(context.WithoutCancel(ctx), p))
	}
	return p, writeJSON(l.l.pod(p.Name), p)
}

func (l *lab) newPod(s PodSpec) (Pod, error) {
	node, err := l.topo.Node(s.Node)
	if err != nil {
		return Pod{}, err
	}
	if err := l.complete(node); err != nil {
		return Pod{}, err
	}
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails, see its documentation
	return Pod{
		Name: s.Name, Node: node.Name, ContainerID: hex.EncodeToString(id[:]), Requested: s.IPs,
	}, nil
}

// attach makes the namespace and runs ADD; it completes p.
func (l *lab) attach(ctx context.Context, p *Pod) error {
	rt, err := l.podRuntime(*p)
	if err != nil {
		return err
	}
	path := l.l.netns(p.Name)
	if err := newNetns(path); err != nil {
		return err
	}
	if err := setUp(path, "lo"); err != nil {
		return err
	}
	start := time.Now()
	p.Addresses, err = rt.add(ctx, *p)
	p.AddMillis = float64(time.Since(start).Microseconds()) / 1000
	return err
}

func setUp(netns, link string) error {
	h, ns, err := netlinkIn(netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	return configureLink(h, link, nil)
}

func (l *lab) podRuntime(p Pod) (*cniRuntime, error) {
	node, err := l.topo.Node(p.Node)
	if err != nil {
		return nil, err
	}
	return l.runtime(node)
}

// DeletePod ends what runs in the pod, detaches its network by CNI DEL and
// removes its namespace. Where DEL fails the pod stays, so that it can be tried
// again.
func (h Host) DeletePod(ctx context.Context, name, pod string) error {
	l, err := h.open(name, changing)
	if err != nil {
		return err
	}
	defer l.close()
	if err := ValidatePodName(pod); err != nil {
		return err
	}
	var p Pod
	if err := readJSON(l.l.pod(pod), &p); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return &NoPodError{Name: pod}
		}
		return err
	}
	return l.deletePod(ctx, p)
}

// deletePod goes on from wherever AddPod, or an earlier call of itself, was
// interrupted. The Pod goes last: while it exists there is something to do.
func (l *lab) deletePod(ctx context.Context, p Pod) error {
	path := l.l.netns(p.Name)
	if err := stopAllIn(path); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	rt, err := l.podRuntime(p)
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	if err := rt.del(ctx, p); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	l.say("%s: pod %s deleted", p.Node, p.Name)
	if err := removeNetns(path); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return os.Remove(l.l.pod(p.Name))
}

// Pods returns the lab's pods in the order of their names, half made ones
// included: these have no address.
func (h Host) Pods(name string) ([]Pod, error) {
	l, err := h.open(name, reading)
	if err != nil {
		return nil, err
	}
	defer l.close()
	return l.pods()
}

func (l *lab) pods() ([]Pod, error) {
	paths, err := filepath.Glob(l.l.pod("*")) // sorted; the lab's path has no special character
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var all []Pod
	var errs []error
	for _, path := range paths {
		var p Pod
		if err := readJSON(path, &p); err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, p)
	}
	return all, errors.Join(errs...)
}
