// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"net/netip"
	"strings"

	"pgregory.net/rapid"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

// anyObject draws an object of any kind; about half of them have a mistake.
var anyObject = rapid.Custom(func(t *rapid.T) map[string]any {
	wrong := rapid.Bool().Draw(t, "wrong")
	kind := rapid.SampledFrom([]string{v1alpha1.IPPoolKind, v1alpha1.SubnetLeaseKind, v1alpha1.AddressClaimKind}).Draw(t, "kind")
	w := writer{t, wrong}
	object := map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind}
	switch kind {
	case v1alpha1.IPPoolKind:
		object["metadata"], object["spec"] = map[string]any{"name": w.name()}, w.pool()
	case v1alpha1.SubnetLeaseKind:
		object["metadata"], object["spec"] = w.lease()
	default:
		object["metadata"], object["spec"] = map[string]any{"name": w.name(), "namespace": "default"}, w.claim()
	}
	return object
})

// writer writes the parts of an object; wrong, it now and then slips.
type writer struct {
	*rapid.T
	wrong bool
}

func (w writer) slips() bool { return w.wrong && w.oneIn(10) }
func (w writer) yes() bool   { return rapid.Bool().Draw(w.T, "there") }
func (w writer) oneIn(n int) bool {
	return rapid.IntRange(1, n).Draw(w.T, "chance") == 1
}
func (w writer) of(list ...string) string { return rapid.SampledFrom(list).Draw(w.T, "text") }

func (w writer) name() string {
	if w.slips() {
		return w.of("", "A", "a_b", "-a", "a-", "a..b", "a.", strings.Repeat("a", 254), "ä", "a\n")
	}
	return w.of("a", "default", "web-0", "a.b-c.d", "0", strings.Repeat("a", 253), strings.Repeat("b.", 100)+"c")
}

// edges are addresses at and around those that mean something else.
var edges = []string{
	"0.0.0.0", "0.0.0.1", "1.0.0.0", "126.255.255.255", "127.0.0.1", "128.0.0.0", "169.253.255.255", "169.254.0.0", "169.255.0.0", "223.255.255.255",
	"224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255",
	"::", "::1", "::2", "::fffe:0:0", "::ffff:0:0", "::ffff:10.0.0.1", "::1:0:0:0", "::8000:0:0", "::fff0:0:0", "::f:ffff:0:0", "fe7f:ffff::", "fe80::", "febf::1", "fec0::",
	"feff::", "ff00::", "ff02::1", "8000::", "f000::", "c000::",
}

func (w writer) address(is4 bool) netip.Addr {
	if w.oneIn(10) {
		return netip.MustParseAddr(w.of(edges...))
	}
	if w.slips() {
		is4 = !is4
	}
	from := []string{"10.42.0.0", "192.0.2.0", "100.64.0.0"}
	if !is4 {
		from = []string{"fd00:42::", "2001:db8::", "fd00:1:2:3:4:5:6:0"}
	}
	a := netip.MustParseAddr(w.of(from...)).AsSlice()
	for i := range a {
		if w.oneIn(4) {
			a[i] |= rapid.Byte().Draw(w.T, "byte")
		}
	}
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

// spelled writes an address in one of the ways that it can be written in.
func (w writer) spelled(a netip.Addr) string {
	if a.Is4() || !w.oneIn(4) {
		return a.String()
	}
	long := a.StringExpanded()
	quad := a.As16()
	return w.of(long, strings.ToUpper(a.String()), fmt.Sprintf("%s:%d.%d.%d.%d", long[:29], quad[12], quad[13], quad[14], quad[15]))
}

// slipped is a text that stands for no address and no subnet, or for an odd one.
func (w writer) slipped(text string) string {
	return w.of("", "lots", text+"%eth0", text+" ", " "+text, "0"+text, text+"/", text+"/+8", text+"/08", text+"/129", text+"/33", text+"\n",
		"10.042.0.0", "10.42.0.0/016", "10.42", "10.42/16", "0x0a.0.0.0", ":::", "1::2::3", "::ffff:10.42.0.0/112", "::ffff:10.42.0.1", "fe80::1%eth0/64", text+"é")
}

func (w writer) addressText(is4 bool) string {
	a := w.address(is4)
	if w.slips() {
		return w.slipped(a.String())
	}
	return w.spelled(a)
}

// prefix draws one that mostly has no host bits, of one of these lengths or any.
func (w writer) prefix(is4 bool, lengths ...int) netip.Prefix {
	a := w.address(is4)
	bits := rapid.SampledFrom(lengths).Draw(w.T, "length")
	if bits > a.BitLen() || w.oneIn(8) {
		bits = rapid.IntRange(0, a.BitLen()).Draw(w.T, "bits")
	}
	p := netip.PrefixFrom(a, bits)
	if w.slips() {
		return p
	}
	return p.Masked()
}

func (w writer) prefixText(p netip.Prefix) string {
	if w.slips() {
		return w.slipped(p.Addr().String())
	}
	return fmt.Sprintf("%s/%d", w.spelled(p.Addr()), p.Bits())
}

func (w writer) pool() map[string]any {
	spec := map[string]any{}
	var ranges []netip.Prefix
	for _, family := range []struct {
		name    string
		is4     bool
		lengths []int
	}{{"ipv4", true, []int{8, 12, 16, 20, 24, 28, 30, 31, 32}}, {"ipv6", false, []int{39, 40, 41, 48, 56, 64, 80, 95, 96, 112, 126, 127, 128}}} {
		if !w.yes() {
			continue
		}
		p := w.prefix(family.is4, family.lengths...)
		given := map[string]any{"cidr": w.prefixText(p)}
		if w.yes() {
			given["blockSize"] = int64(p.Bits() + rapid.SampledFrom([]int{0, 1, 2, 4, 8, 23, 24, 25, -1}).Draw(w.T, "more"))
		}
		spec[family.name] = given
		ranges = append(ranges, p)
	}
	if len(ranges) > 0 && w.yes() {
		spec["reserved"] = w.reserved(ranges)
	}
	if w.oneIn(3) {
		spec["nodeSelector"] = w.selector()
	}
	if w.yes() {
		spec["onRequest"] = w.yes()
	}
	return spec
}

// reserved draws what is mostly inside the ranges.
func (w writer) reserved(ranges []netip.Prefix) []any {
	n := rapid.IntRange(0, 4).Draw(w.T, "reserved")
	if w.wrong && w.oneIn(20) {
		n = 1024 + rapid.IntRange(0, 1).Draw(w.T, "too many")
	}
	list := make([]any, 0, n)
	for range min(n, 4) {
		p := rapid.SampledFrom(ranges).Draw(w.T, "range")
		bits := rapid.IntRange(max(0, p.Bits()-1), p.Addr().BitLen()).Draw(w.T, "bits")
		inside := netip.PrefixFrom(p.Masked().Addr(), max(bits, p.Bits()))
		switch {
		case w.slips():
			list = append(list, w.slipped(p.Addr().String()))
		case w.wrong && w.oneIn(4):
			list = append(list, w.prefixText(netip.PrefixFrom(w.address(p.Addr().Is4()), 32)))
		case w.wrong && w.oneIn(4):
			list = append(list, netip.PrefixFrom(inside.Addr().Next(), bits).String())
		case w.yes():
			list = append(list, w.spelled(inside.Addr()))
		default:
			list = append(list, w.prefixText(inside))
		}
	}
	for len(list) < n {
		list = append(list, list[0])
	}
	return list
}

func (w writer) selector() map[string]any {
	key, value := w.of("zone", "topology.kubernetes.io/zone"), w.of("", "a", "a.b_c-d")
	if w.slips() {
		key = w.of("", "a b", "a/b/c", "-a", strings.Repeat("a", 64))
	}
	if w.slips() {
		value = w.of("a b", "-", strings.Repeat("a", 64))
	}
	e := map[string]any{"key": key, "operator": w.of("In", "NotIn", "Exists", "DoesNotExist")}
	if w.slips() {
		e["operator"] = w.of("", "in", "Like", "Gt")
	}
	if op := e["operator"]; (op == "In" || op == "NotIn") != w.slips() {
		e["values"] = []any{value}
	} else if w.yes() {
		e["values"] = []any{}
	}
	s := map[string]any{}
	if w.yes() {
		s["matchLabels"] = map[string]any{key: value}
	}
	if w.yes() {
		s["matchExpressions"] = []any{e}
	}
	return s
}

func (w writer) lease() (metadata, spec map[string]any) {
	p := w.prefix(w.yes(), 24, 26, 32, 64, 128)
	node := w.name()
	spec = map[string]any{"subnet": w.prefixText(p), "nodeName": node}
	metadata = map[string]any{"name": cluster.LeaseName(p)}
	if w.slips() {
		metadata["name"] = w.leaseName(p)
	}
	if w.yes() {
		spec["pool"] = w.of("", w.name())
	}
	if p.IsSingleIP() != w.slips() {
		spec["pod"] = w.pod()
	}
	if w.yes() {
		spec["nodeAddresses"] = w.nodeAddresses()
	}
	if w.yes() {
		spec["vxlan"] = w.vxlan()
	}
	if node != "" && w.oneIn(3) {
		owner := map[string]any{"apiVersion": "v1", "kind": w.of("Node", "ConfigMap"), "name": node, "uid": "u"}
		if w.slips() {
			owner["name"] = "another"
		}
		metadata["ownerReferences"] = []any{owner}
	}
	return metadata, spec
}

// leaseName is another subnet's, or another spelling of the subnet's.
func (w writer) leaseName(p netip.Prefix) string {
	name := cluster.LeaseName(p)
	return w.of("a", "", cluster.LeaseName(netip.PrefixFrom(p.Addr().Next(), p.Bits())), "0"+name, strings.Replace(name, "-", "-0", 1), name+"-0",
		strings.Replace(name, "-0-", "--", 1), strings.Replace(name, "-0-0-", "--", 1), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", ".", 1),
		strings.Replace(p.Masked().String(), "/", "-", 1), strings.ToUpper(name))
}

func (w writer) pod() string {
	namespace, name := w.of("shop", "a", strings.Repeat("a", 63)), w.name()
	if w.slips() {
		return w.of("", namespace, namespace+"/", "/"+name, "a.b/c", namespace+"/"+name+"/x", strings.Repeat("a", 64)+"/b", "a/"+strings.Repeat("a", 254), "A/b", "a/b\n")
	}
	return namespace + "/" + name
}

func (w writer) nodeAddresses() []any {
	list := []any{}
	if w.yes() {
		list = append(list, w.addressText(true))
	}
	if w.yes() {
		list = append(list, w.addressText(false))
	}
	if w.slips() {
		list = append(list, w.addressText(w.yes()))
	}
	return list
}

func (w writer) vxlan() map[string]any {
	v := map[string]any{"mac": w.of("02:57:01:02:03:04", "9A:0b:d5:2d:56:EC", "00:00:00:00:00:01"), "vni": int64(119), "port": int64(4789)}
	if w.slips() {
		v["mac"] = w.of("", "01:02:03:04:05:06", "00:00:00:00:00:00", "02-57-01-02-03-04", "0257.0102.0304", "02:57:01:02:03:04:05:06", "2:57:1:2:3:4", "02:57:01:02:03:0g")
	}
	if w.slips() {
		v["vni"] = rapid.SampledFrom([]int64{-1, 0, 1, 16777215, 16777216}).Draw(w.T, "vni")
	}
	if w.slips() {
		v["port"] = rapid.SampledFrom([]int64{-1, 0, 1, 65535, 65536}).Draw(w.T, "port")
	}
	return v
}

func (w writer) claim() map[string]any {
	spec := map[string]any{}
	for _, name := range []string{"ipv4", "ipv6"} {
		if w.yes() {
			continue
		}
		spec[name] = w.addressText(name == "ipv4")
		if w.oneIn(10) {
			spec[name] = ""
		}
	}
	return spec
}
