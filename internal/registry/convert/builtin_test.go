// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/core/cluster"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return &object
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// wantError: err names every one of these fields, and says what is wanted.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v lacks %q", err, w)
		}
	}
}

func TestNode(t *testing.T) {
	got, err := Node(decode[corev1.Node](t, `
metadata: {name: node-3, uid: u3, labels: {zone: a}}
spec: {podCIDR: 10.42.3.0/24, podCIDRs: ["fd00:42:0:3::/64", 10.42.3.0/24]}
status:
  addresses:
  - {type: Hostname, address: node-3}
  - {type: ExternalIP, address: 198.51.100.1}
  - {type: InternalIP, address: 'fe80::1'}
  - {type: InternalIP, address: '2001:db8::13'}
  - {type: InternalIP, address: 192.0.2.13}
  - {type: InternalIP, address: 192.0.2.14}
  - {type: InternalIP, address: 127.0.0.1}
`))
	want := cluster.Node{
		Name: "node-3", UID: "u3", Labels: map[string]string{"zone": "a"},
		Addresses: addrs("2001:db8::13", "192.0.2.13", "192.0.2.14"),
		PodCIDRs:  prefixes("fd00:42:0:3::/64", "10.42.3.0/24"),
	}
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err = Node(decode[corev1.Node](t, "metadata: {name: a}\nspec: {podCIDR: 10.42.3.0/24}"))
	if diff := cmp.Diff(cluster.Node{Name: "a", PodCIDRs: prefixes("10.42.3.0/24")}, got, byValue); err != nil || diff != "" {
		t.Errorf("of podCIDR: %v\n%s", err, diff)
	}
}

func TestNodeWhoseNetworkIsNotReady(t *testing.T) {
	for text, want := range map[string]bool{
		"status: {conditions: [{type: NetworkUnavailable, status: 'True'}]}":                                 true,
		"status: {conditions: [{type: NetworkUnavailable, status: 'False'}]}":                                false,
		"status: {conditions: [{type: NetworkUnavailable, status: Unknown}]}":                                false,
		"status: {conditions: [{type: Ready, status: 'True'}]}":                                              false,
		"spec: {taints: [{key: a, effect: NoSchedule}, {key: weft.dev/agent-not-ready, effect: NoExecute}]}": true,
		"spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}":                          false,
	} {
		got, err := Node(decode[corev1.Node](t, "metadata: {name: a}\n"+text))
		if err != nil || got.Unmarked != want {
			t.Errorf("%s: unmarked %v, %v", text, got.Unmarked, err)
		}
	}
}

func TestNodeMistakes(t *testing.T) {
	_, err := Node(decode[corev1.Node](t, `
spec: {podCIDRs: [10.42.3.1/24, 10.43.0.0/24, 10.44.0.0/24, x, 127.0.0.0/24, 0.0.0.0/0]}
status: {addresses: [{type: InternalIP, address: x}]}
`))
	wantError(t, err, "metadata.name: Required", "status.addresses[0].address",
		"spec.podCIDRs[0]", "it should be 10.42.3.0/24", "spec.podCIDRs[2]: Invalid value: \"10.44.0.0/24\": is the second one of its family",
		"spec.podCIDRs[3]", "spec.podCIDRs[4]", "loopback", "spec.podCIDRs[5]", "whole address space")
	if err != nil && strings.Contains(err.Error(), "podCIDRs[1]") {
		t.Errorf("%v: nothing is wrong with podCIDRs[1]", err)
	}
	_, err = Node(decode[corev1.Node](t, "metadata: {name: a}\nspec: {podCIDR: x}"))
	wantError(t, err, "spec.podCIDRs[0]", "want a CIDR")
}

func TestNamespace(t *testing.T) {
	got, err := Namespace(decode[corev1.Namespace](t, "metadata: {name: a, labels: {b: c}, annotations: {weft.dev/pool: blue, weft.deviant/x: y, x: y}}"))
	want := cluster.Namespace{Name: "a", Annotations: map[string]string{"weft.dev/pool": "blue"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	_, err = Namespace(&corev1.Namespace{})
	wantError(t, err, "metadata.name: Required")
}

func TestPod(t *testing.T) {
	const meta = "metadata: {namespace: ns, name: web-0, uid: u, labels: {app: web}}\n"
	want := cluster.Pod{Namespace: "ns", Name: "web-0", UID: "u"}
	withMeta := func(text string) string {
		if strings.HasPrefix(text, "metadata:") {
			return text
		}
		return meta + text
	}
	cases := map[string]struct {
		text string
		edit func(*cluster.Pod)
	}{
		"not scheduled": {"", func(*cluster.Pod) {}},
		"running": {
			"spec: {nodeName: node-3}\nstatus: {phase: Running, podIP: 10.42.3.5, podIPs: [{ip: 10.42.3.5}, {ip: 'fd00:42::5'}]}",
			func(p *cluster.Pod) { p.Node, p.Addresses = "node-3", addrs("10.42.3.5", "fd00:42::5") },
		},
		"podIP only":   {"status: {podIP: 10.42.3.5}", func(p *cluster.Pod) { p.Addresses = addrs("10.42.3.5") }},
		"host network": {"spec: {hostNetwork: true}", func(p *cluster.Pod) { p.HostNetwork = true }},
		"annotated": {
			"metadata: {namespace: ns, name: web-0, uid: u, labels: {app: web}, annotations: {weft.dev/pool: blue, other.dev/x: y}}",
			func(p *cluster.Pod) { p.Annotations = map[string]string{"weft.dev/pool": "blue"} },
		},
		"static": {
			"metadata: {namespace: ns, name: web-0, uid: u, annotations: {kubernetes.io/config.mirror: 5f3a, kubernetes.io/config.hash: 5f3b}}",
			func(p *cluster.Pod) { p.Mirror = "5f3a" },
		},
		"made by a controller": {
			"metadata: {namespace: ns, name: web-0, uid: u, labels: {app: web}, ownerReferences: " +
				"[{apiVersion: v1, kind: ConfigMap, name: c, uid: c1}, {apiVersion: apps/v1, kind: StatefulSet, name: web, uid: s1, controller: true}]}",
			func(p *cluster.Pod) {
				p.Controller = cluster.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "s1"}
			},
		},
		"scheduled": {
			"metadata: {namespace: ns, name: web-0, uid: u, labels: {app: web}, creationTimestamp: '2026-01-02T03:04:05Z'}\nstatus: {conditions: " +
				"[{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-02T03:04:06Z'}, {type: Ready, status: 'False', lastTransitionTime: '2026-01-02T03:04:07Z'}]}",
			func(p *cluster.Pod) { p.Created, p.Scheduled = 1767323045e9, 1767323046e9 },
		},
		"ready": {
			"status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-02T03:04:07Z'}]}",
			func(p *cluster.Pod) { p.Ready = 1767323047e9 },
		},
		"succeeded": {"status: {phase: Succeeded, podIP: 10.42.3.5}", func(*cluster.Pod) {}},
		"failed":    {"status: {phase: Failed, podIPs: [{ip: 10.42.3.5}]}", func(*cluster.Pod) {}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := want
			c.edit(&want)
			got, err := Pod(decode[corev1.Pod](t, withMeta(c.text)))
			if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	_, err := Pod(decode[corev1.Pod](t, "status: {podIPs: [{ip: x}]}"))
	wantError(t, err, "metadata.name: Required", "metadata.namespace: Required", "status.podIPs[0].ip")
}
