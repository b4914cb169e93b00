// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/test/apiserver"
)

// onePod: it is read past the Store.
func onePod(t *testing.T, _ *apiserver.Server, c *client) {
	p, err := c.Pod(t.Context(), "default", "web-0")
	if err != nil || p.Key() != "default/web-0" || p.Node != "n2" || p.UID == "" || p.Annotations["weft.dev/pool"] != "blue" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := c.Pod(t.Context(), "default", "web-1"); !errors.Is(err, registry.ErrGone) {
		t.Errorf("of a pod that is not there: %v", err)
	}
}

func markReady(t *testing.T, s *apiserver.Server, c *client) {
	unmarked := func(want bool) {
		t.Helper()
		c.eventually(fmt.Sprintf("unmarked: %v", want), func(s *registry.State) bool { return s.Nodes["n1"].Unmarked == want })
	}
	const state = "jsonpath={.spec.taints[*].key} {.status.conditions[?(@.type=='NetworkUnavailable')].status} {.status.conditions[?(@.type=='NetworkUnavailable')].reason}"
	if err := c.MarkReady(t.Context()); err != nil || c.requests("get nodes 200") > 0 {
		t.Errorf("%v, requests %v: nothing was to be done", err, c.asked)
	}
	s.MustKubectl("", "taint", "node", "n1", "weft.dev/agent-not-ready=:NoSchedule", "other=:NoSchedule")
	s.MustKubectl("", "patch", "node", "n1", "--subresource=status", "-p", `{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": "New"}]}}`)
	unmarked(true)
	if err := c.MarkReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	unmarked(false)
	if got := s.MustKubectl("", "get", "node", "n1", "-o", state); !strings.Contains(got, "other") || strings.Contains(got, "weft.dev") || !strings.HasSuffix(got, "False WeftReady") {
		t.Errorf("taints and condition are %q", got)
	}
	s.MustKubectl("", "taint", "node", "n1", "other-", "weft.dev/agent-not-ready=:NoExecute")
	unmarked(true)
	if err := c.MarkReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	unmarked(false)
	patched := c.requests("patch nodes 200")
	if err := c.MarkReady(t.Context()); err != nil || c.requests("patch nodes 200") != patched || patched != 2 {
		t.Errorf("%v, requests %v", err, c.asked)
	}
}

// reports: the same news is one Event with a count.
func reports(t *testing.T, s *apiserver.Server, c *client) {
	p, err := c.Pod(t.Context(), "default", "web-0")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.Report(registry.Event{Pod: p, Warning: true, Reason: "AddressInUse", Message: "10.42.3.7 is another pod's"})
	}
	c.Report(registry.Event{Pod: p, Reason: "AddressKept", Message: strings.Repeat("ä", 2000)})
	c.Report(registry.Event{Reason: "PoolFull", Message: "no block is free"})
	apiserver.Eventually(t, func() error {
		got := s.MustKubectl("", "get", "events", "-o", `jsonpath={range .items[*]}{.involvedObject.kind} {.involvedObject.name} {.type} {.reason} {.count} {.source.host}{"\n"}{end}`)
		for _, want := range []string{"Pod web-0 Warning AddressInUse 3 n1\n", "Pod web-0 Normal AddressKept 1 n1\n", "Node n1 Normal PoolFull 1 n1\n"} {
			if strings.Count(got, want) != 1 {
				return fmt.Errorf("want one %qof\n%s", want, got)
			}
		}
		if n := strings.Count(got, "\n"); n != 3 {
			return fmt.Errorf("%d events, want 3:\n%s", n, got)
		}
		return nil
	})
	if got := s.MustKubectl("", "describe", "pod", "web-0"); !strings.Contains(got, "AddressInUse") {
		t.Errorf("kubectl describe shows no event:\n%s", got)
	}
	if got := s.MustKubectl("", "describe", "node", "n1"); !strings.Contains(got, "PoolFull") {
		t.Errorf("kubectl describe shows no event:\n%s", got)
	}
	// A flood neither blocks nor gets through.
	for i := range 10 * eventQueue {
		c.Report(registry.Event{Pod: cluster.Pod{Namespace: "default", Name: "web-0"}, Reason: "Flood", Message: fmt.Sprint(i)})
	}
	apiserver.Eventually(t, func() error {
		if len(c.events.queue) > 0 {
			return errors.New("the queue is not empty")
		}
		return nil
	})
	if n := c.requests("create events 201"); n > eventsAtOnce+5 {
		t.Errorf("%d events were created", n)
	}
}
