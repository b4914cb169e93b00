// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

const manifest = `apiVersion: weft.dev/v1alpha1
kind: SubnetLease
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  name: 10-42-3-0-24
  ownerReferences:
  - apiVersion: v1
    kind: Node
    name: node-3
    uid: u3
  resourceVersion: "7"
  uid: l1
spec:
  nodeAddresses:
  - 192.0.2.13
  - 2001:db8::13
  nodeName: node-3
  pool: default
  subnet: 10.42.3.0/24
  vxlan:
    mac: "02:57:01:02:03:04"
    port: 4789
    vni: 119
`

func manifestLease() cluster.Lease {
	return cluster.Lease{
		Subnet: netip.MustParsePrefix("10.42.3.0/24"), UID: "l1", Version: "7",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(),
		Pool:    "default", Node: "node-3", NodeUID: "u3",
		Addresses: addrs("192.0.2.13", "2001:db8::13"),
		VTEP:      cluster.VTEP{MAC: attach.MAC{0x02, 0x57, 1, 2, 3, 4}, VNI: 119, Port: 4789},
	}
}

func TestLease(t *testing.T) {
	got, err := Lease(decode[v1alpha1.SubnetLease](t, manifest))
	if diff := cmp.Diff(manifestLease(), got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestSubnetLeaseIsCompleteManifest(t *testing.T) {
	text, err := yaml.Marshal(SubnetLease(manifestLease()))
	if diff := cmp.Diff(manifest, string(text)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// What a lease does not have leaves no trace in its manifest.
func TestSmallestSubnetLease(t *testing.T) {
	text, err := yaml.Marshal(SubnetLease(cluster.Lease{Subnet: netip.MustParsePrefix("fd00:42:0:3::/64"), Node: "a"}))
	want := `apiVersion: weft.dev/v1alpha1
kind: SubnetLease
metadata:
  name: fd00-42-0-3-0-0-0-0-64
spec:
  nodeName: a
  subnet: fd00:42:0:3::/64
`
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestLeaseOfAPod(t *testing.T) {
	const manifest = `apiVersion: weft.dev/v1alpha1
kind: SubnetLease
metadata:
  name: 10-42-3-7-32
spec:
  nodeName: a
  pod: shop/web-0
  pool: default
  subnet: 10.42.3.7/32
`
	want := cluster.Lease{Subnet: netip.MustParsePrefix("10.42.3.7/32"), Pool: "default", Node: "a", Pod: "shop/web-0"}
	got, err := Lease(decode[v1alpha1.SubnetLease](t, manifest))
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	text, err := yaml.Marshal(SubnetLease(want))
	if diff := cmp.Diff(manifest, string(text)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestLeaseIsPutInOrder(t *testing.T) {
	got, err := Lease(decode[v1alpha1.SubnetLease](t, `
metadata:
  name: 10-42-3-0-24
  ownerReferences:
  - {apiVersion: v1, kind: Node, name: a, uid: u}
  - {apiVersion: v1, kind: ConfigMap, name: b, uid: other}
spec: {subnet: 10.42.3.0/24, nodeName: a, nodeAddresses: ["2001:db8::13", 192.0.2.13]}
`))
	want := cluster.Lease{Subnet: netip.MustParsePrefix("10.42.3.0/24"), Node: "a", NodeUID: "u", Addresses: addrs("192.0.2.13", "2001:db8::13")}
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestWrongLeaseIsRefusedWithEveryReason(t *testing.T) {
	got, err := Lease(decode[v1alpha1.SubnetLease](t, "metadata: {name: x}\nspec: {subnet: 10.0.0.0/24, nodeName: '', nodeAddresses: ['::1']}"))
	wantError(t, err, "metadata.name", "spec.nodeName", "spec.nodeAddresses[0]")
	if diff := cmp.Diff(cluster.Lease{}, got, byValue); diff != "" {
		t.Errorf("there is a value besides the error:\n%s", diff)
	}
}

// A lease survives the way through its manifest.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawLease(t)
		text, err := yaml.Marshal(SubnetLease(want))
		if err != nil {
			t.Fatal(err)
		}
		var object v1alpha1.SubnetLease
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			t.Fatal(err)
		}
		got, err := Lease(&object)
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Errorf("%v\n%s\n%s", err, diff, text)
		}
	})
}

func drawLease(t *rapid.T) cluster.Lease {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`)
	subnet := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := drawAddress(t, rapid.Bool().Draw(t, "IPv4"))
		return netip.PrefixFrom(a, rapid.IntRange(1, a.BitLen()).Draw(t, "bits")).Masked()
	}).Filter(func(p netip.Prefix) bool { return cluster.UsableSubnet(p) == nil })
	l := cluster.Lease{
		Subnet:  subnet.Draw(t, "subnet"),
		UID:     rapid.SampledFrom([]string{"", "l1"}).Draw(t, "uid"),
		Version: rapid.SampledFrom([]string{"", "7"}).Draw(t, "version"),
		// What a creationTimestamp can hold: seconds.
		Created: rapid.Int64Range(0, 4e9).Draw(t, "created") * int64(time.Second),
		Pool:    rapid.OneOf(rapid.Just(""), name).Draw(t, "pool"),
		Node:    name.Draw(t, "node"),
		NodeUID: rapid.SampledFrom([]string{"", "u1"}).Draw(t, "node uid"),
	}
	if l.Subnet.IsSingleIP() {
		l.Pod = rapid.StringMatching(`[a-z0-9]{1,9}/[a-z0-9]{1,5}([-.][a-z0-9]{1,5})?`).Draw(t, "pod")
	}
	for _, is4 := range []bool{true, false} {
		if rapid.Bool().Draw(t, "has an address") {
			address := rapid.Custom(func(t *rapid.T) netip.Addr { return drawAddress(t, is4) })
			l.Addresses = append(l.Addresses, address.Filter(func(a netip.Addr) bool { return cluster.UsableAddress(a) == nil }).Draw(t, "address"))
		}
	}
	if rapid.Bool().Draw(t, "has a VTEP") {
		l.VTEP = cluster.VTEP{
			MAC:  cluster.VTEPMAC(l.Node),
			VNI:  rapid.Uint32Range(1, 1<<24-1).Draw(t, "vni"),
			Port: rapid.Uint16Range(1, 65535).Draw(t, "port"),
		}
	}
	return l
}

func drawAddress(t *rapid.T, is4 bool) netip.Addr {
	length := 16
	if is4 {
		length = 4
	}
	a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "bytes"))
	return a
}

// Whatever a manifest holds is refused or understood; what is understood is
// written again as it was.
func FuzzLease(f *testing.F) {
	f.Add([]byte(manifest))
	f.Add([]byte("metadata: {name: 10-0-0-0-24}\nspec: {subnet: 10.0.0.0/24, nodeName: a, vxlan: {mac: x}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object v1alpha1.SubnetLease
		if yaml.UnmarshalStrict(raw, &object) != nil {
			return
		}
		lease, err := Lease(&object)
		if err != nil {
			return
		}
		again, err := Lease(SubnetLease(lease))
		lease.Created, again.Created = 0, 0 // times outside of 1678 to 2262 have no nanoseconds
		if diff := cmp.Diff(lease, again, byValue); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
