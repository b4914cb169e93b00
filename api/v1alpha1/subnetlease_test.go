// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const goodLease = `
apiVersion: weft.dev/v1alpha1
kind: SubnetLease
metadata:
  name: 10-42-3-0-24
  ownerReferences: [{apiVersion: v1, kind: Node, name: node-3, uid: u3}]
spec:
  subnet: 10.42.3.0/24
  pool: default
  nodeName: node-3
  nodeAddresses: [192.0.2.13, "2001:db8::13"]
  vxlan: {mac: "02:57:01:02:03:04", vni: 119, port: 4789}
`

func parseLease(t *testing.T, text string) *SubnetLease {
	t.Helper()
	var l SubnetLease
	if err := yaml.UnmarshalStrict([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	return &l
}

func TestGoodLeases(t *testing.T) {
	for name, text := range map[string]string{
		"everything":           goodLease,
		"the least":            "metadata: {name: 10-42-3-0-24}\nspec: {subnet: 10.42.3.0/24, nodeName: a}",
		"IPv6":                 "metadata: {name: fd00-42-0-3-0-0-0-0-64}\nspec: {subnet: 'FD00:42:0:3::/64', nodeName: a.b}",
		"IPv6 address first":   strings.Replace(goodLease, `192.0.2.13, "2001:db8::13"`, `"2001:db8::13", 192.0.2.13`, 1),
		"MAC in upper case":    strings.Replace(goodLease, "02:57:01:02:03:04", "02:AB:01:02:03:04", 1),
		"a pod's":              strings.NewReplacer("10-42-3-0-24", "10-42-3-7-32", "10.42.3.0/24", "10.42.3.7/32\n  pod: shop/web-0.a").Replace(goodLease),
		"a pod's, IPv6":        "metadata: {name: fd00-42-0-0-0-0-0-7-128}\nspec: {subnet: 'fd00:42::7/128', nodeName: a, pod: shop/web-0}",
		"owner of other kinds": strings.Replace(goodLease, "kind: Node, name: node-3", "kind: ConfigMap, name: x", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if errs := parseLease(t, text).Validate(); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func TestLeaseMistakes(t *testing.T) {
	cases := map[string]struct{ from, to, field, want string }{
		"no name":                {"name: 10-42-3-0-24", "labels: {}", "metadata.name", "the name for 10.42.3.0/24 is 10-42-3-0-24"},
		"name of another subnet": {"10-42-3-0-24", "10-42-4-0-24", "metadata.name", "the name for 10.42.3.0/24 is 10-42-3-0-24"},
		"owner is another node":  {"Node, name: node-3", "Node, name: node-4", "metadata.ownerReferences[0].name", "is another Node than spec.nodeName"},
		"no subnet":              {"subnet: 10.42.3.0/24", "subnet: ''", "spec.subnet", "Required"},
		"garbage subnet":         {"10.42.3.0/24", "mine", "spec.subnet", "want a CIDR"},
		"host bits":              {"10.42.3.0/24", "10.42.3.1/24", "spec.subnet", "it should be 10.42.3.0/24"},
		"0 bits":                 {"10.42.3.0/24", "0.0.0.0/0", "spec.subnet", "whole address space"},
		"loopback subnet":        {"10.42.3.0/24", "127.0.0.0/24", "spec.subnet", "loopback"},
		"multicast subnet":       {"10.42.3.0/24", "224.0.0.0/24", "spec.subnet", "multicast"},
		"link-local subnet":      {"10.42.3.0/24", "'fe80::/64'", "spec.subnet", "link-local"},
		"block for a pod":        {"pool: default", "pool: default\n  pod: shop/web-0", "spec.subnet", "want a /32"},
		"pod without namespace":  {"pool: default", "pool: default\n  pod: web-0", "spec.pod", "want namespace and name"},
		"pod without name":       {"pool: default", "pool: default\n  pod: shop/", "spec.pod", "want namespace and name"},
		"pod with too many":      {"pool: default", "pool: default\n  pod: a/b/c", "spec.pod", "want namespace and name"},
		"bad namespace of pod":   {"pool: default", "pool: default\n  pod: a.b/c", "spec.pod", "want namespace and name"},
		"bad pool":               {"pool: default", "pool: a_b", "spec.pool", "RFC 1123"},
		"no node":                {"nodeName: node-3", "nodeName: ''", "spec.nodeName", "Required"},
		"bad node":               {"nodeName: node-3", "nodeName: \"a\\nb\"", "spec.nodeName", "RFC 1123"},
		"garbage address":        {"192.0.2.13", "me", "spec.nodeAddresses[0]", "want an address"},
		"loopback":               {"192.0.2.13", "127.0.0.1", "spec.nodeAddresses[0]", "is loopback"},
		"multicast":              {"192.0.2.13", "224.0.0.9", "spec.nodeAddresses[0]", "is multicast"},
		"unspecified":            {"192.0.2.13", "0.0.0.0", "spec.nodeAddresses[0]", "is unspecified"},
		"link-local":             {`"2001:db8::13"`, "'fe80::13'", "spec.nodeAddresses[1]", "is link-local"},
		"with a zone":            {`"2001:db8::13"`, "'2001:db8::13%eth0'", "spec.nodeAddresses[1]", "zone"},
		"two of a family":        {`"2001:db8::13"`, "192.0.2.14", "spec.nodeAddresses[1]", "is the second IPv4 address"},
		"no MAC":                 {`mac: "02:57:01:02:03:04", `, "", "spec.vxlan.mac", "unicast hardware address"},
		"multicast MAC":          {"02:57:01:02:03:04", "01:57:01:02:03:04", "spec.vxlan.mac", "unicast hardware address"},
		"zero MAC":               {"02:57:01:02:03:04", "00:00:00:00:00:00", "spec.vxlan.mac", "unicast hardware address"},
		"EUI-64":                 {"02:57:01:02:03:04", "02:57:01:02:03:04:05:06", "spec.vxlan.mac", "unicast hardware address"},
		"other spelling":         {"02:57:01:02:03:04", "0257.0102.0304", "spec.vxlan.mac", "unicast hardware address"},
		"VNI 0":                  {"vni: 119", "vni: 0", "spec.vxlan.vni", "want 1 to 16777215"},
		"VNI too large":          {"vni: 119", "vni: 16777216", "spec.vxlan.vni", "want 1 to 16777215"},
		"port 0":                 {"port: 4789", "port: 0", "spec.vxlan.port", "want 1 to 65535"},
		"port too large":         {"port: 4789", "port: 65536", "spec.vxlan.port", "want 1 to 65535"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodLease, c.from, c.to, 1)
			if text == goodLease {
				t.Fatal("the case changes nothing")
			}
			if c.field == "spec.nodeName" {
				text = strings.Replace(text, "kind: Node,", "kind: Other,", 1) // else the owner is wrong too
			}
			wantOne(t, parseLease(t, text).Validate(), c.field, c.want)
		})
	}
}

func TestLeaseOfOneAddressIsAPods(t *testing.T) {
	l := parseLease(t, "metadata: {name: 10-42-3-7-32}\nspec: {subnet: 10.42.3.7/32, nodeName: a}")
	wantOne(t, l.Validate(), "spec.pod", "says whose it is")
}

func TestAllMistakesOfALeaseAreListed(t *testing.T) {
	l := parseLease(t, `
metadata: {name: x, ownerReferences: [{apiVersion: v1, kind: Node, name: b, uid: u}]}
spec: {subnet: 10.0.0.0/24, pool: "-", nodeName: "", nodeAddresses: ["::1", x], vxlan: {mac: "", vni: -1, port: -1}}
`)
	var fields []string
	for _, e := range l.Validate() {
		fields = append(fields, e.Field)
	}
	want := "metadata.name spec.pool spec.nodeName metadata.ownerReferences[0].name spec.nodeAddresses[0] spec.nodeAddresses[1] " +
		"spec.vxlan.mac spec.vxlan.vni spec.vxlan.port"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("mistakes in %s\nwant        %s", got, want)
	}
}
