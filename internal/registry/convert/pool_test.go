// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

func TestPool(t *testing.T) {
	object := decode[v1alpha1.IPPool](t, `
metadata: {name: default, creationTimestamp: "2026-01-02T03:04:05Z"}
spec:
  ipv6: {cidr: "fd00:42::/48", blockSize: 72}
  ipv4: {cidr: 10.42.0.0/16, blockSize: 26}
  reserved: ["fd00:42::1", 10.42.9.0/24, 10.42.0.0/25, 10.42.9.7, 10.42.0.128/25]
  masquerade: false
  onRequest: true
  nodeSelector:
    matchLabels: {zone: a, disk: ssd}
    matchExpressions: [{key: arch, operator: NotIn, values: [s390x]}, {key: gpu, operator: DoesNotExist}]
`)
	want := cluster.Pool{
		Name:      "default",
		OnRequest: true,
		Created:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(),
		Ranges: []cluster.PoolRange{
			{CIDR: netip.MustParsePrefix("10.42.0.0/16"), BlockBits: 26},
			{CIDR: netip.MustParsePrefix("fd00:42::/48"), BlockBits: 72},
		},
		Reserved: prefixes("10.42.0.0/24", "10.42.9.0/24", "fd00:42::1/128"),
		Selector: cluster.Selector{
			{Key: "disk", Operator: cluster.In, Values: []string{"ssd"}},
			{Key: "zone", Operator: cluster.In, Values: []string{"a"}},
			{Key: "arch", Operator: cluster.NotIn, Values: []string{"s390x"}},
			{Key: "gpu", Operator: cluster.DoesNotExist},
		},
	}
	before := object.DeepCopy()
	got, err := Pool(object)
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff(before, object); diff != "" {
		t.Errorf("the object was changed:\n%s", diff)
	}
}

// Unix nanoseconds reach from 1678 to 2262. A lease that says it is from beyond
// must not become the oldest of all.
func TestTimesBeyondNanoseconds(t *testing.T) {
	for text, want := range map[string]int64{
		"2999-01-01T00:00:00Z": math.MaxInt64, "2262-04-11T23:47:17Z": math.MaxInt64, "2026-01-01T00:00:00Z": 1767225600e9,
		"1969-12-31T23:59:59Z": 0, "1600-01-01T00:00:00Z": 0,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := created(metav1.NewTime(at)); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}

func TestPoolDefaults(t *testing.T) {
	object := decode[v1alpha1.IPPool](t, "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}, ipv6: {cidr: 'fd00::/80'}}")
	want := cluster.Pool{Name: "a", Masquerade: true, Ranges: []cluster.PoolRange{
		{CIDR: netip.MustParsePrefix("10.0.0.0/8"), BlockBits: 24},
		{CIDR: netip.MustParsePrefix("fd00::/80"), BlockBits: 80},
	}}
	got, err := Pool(object)
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if object.Spec.Masquerade != nil || object.Spec.IPv4.BlockSize != nil {
		t.Errorf("defaults were written into the object: %+v", object.Spec)
	}
}

func TestEmptySelectorSelectsEverything(t *testing.T) {
	got, err := Pool(decode[v1alpha1.IPPool](t, "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}, nodeSelector: {}}"))
	if err != nil || !got.Selector.Matches(nil) {
		t.Errorf("selector %v, %v", got.Selector, err)
	}
}

func TestWrongPoolIsRefusedWithEveryReason(t *testing.T) {
	got, err := Pool(decode[v1alpha1.IPPool](t, "spec: {ipv4: {cidr: 10.0.0.1/8}, reserved: [x]}"))
	wantError(t, err, "metadata.name", "spec.ipv4.cidr", "spec.reserved[0]")
	if diff := cmp.Diff(cluster.Pool{}, got, byValue); diff != "" {
		t.Errorf("there is a value besides the error:\n%s", diff)
	}
}

// The merged list covers the same addresses, ascending, disjoint, and so that
// a block that is covered is inside one entry.
func TestMergedReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var given []netip.Prefix
		var texts []string
		for range rapid.IntRange(0, 12).Draw(t, "reservations") {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "octet")})
			p := netip.PrefixFrom(addr, rapid.IntRange(24, 32).Draw(t, "bits")).Masked()
			given, texts = append(given, p), append(texts, p.String())
		}
		got := merged(texts)
		for i := 1; i < len(got); i++ {
			if got[i-1].Compare(got[i]) >= 0 || got[i-1].Overlaps(got[i]) {
				t.Errorf("%v is not ascending and disjoint", got)
			}
		}
		var covered [256]bool
		for i := range 256 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			covered[i] = contains(given, addr)
			if contains(got, addr) != covered[i] {
				t.Errorf("%v of %v: %s is reserved in one of them only", got, given, addr)
			}
		}
		for bits := 24; bits <= 32; bits++ {
			for first := 0; first < 256; first += 1 << (32 - bits) {
				block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(first)}), bits)
				if all(covered[first:first+1<<(32-bits)]) != inside(got, block) {
					t.Errorf("%v: block %s is reserved as a whole: %t", got, block, inside(got, block))
				}
			}
		}
	})
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return inside(list, netip.PrefixFrom(a, a.BitLen()))
}

func inside(list []netip.Prefix, block netip.Prefix) bool {
	for _, p := range list {
		if p.Bits() <= block.Bits() && p.Contains(block.Addr()) {
			return true
		}
	}
	return false
}

func all(bits []bool) bool {
	for _, b := range bits {
		if !b {
			return false
		}
	}
	return true
}

// What Validate accepts converts, and its blocks fit.
func FuzzPool(f *testing.F) {
	f.Add([]byte("metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8, blockSize: 26}, reserved: [10.1.0.0/16, 10.2.0.1]}"))
	f.Add([]byte("metadata: {name: b}\nspec: {ipv6: {cidr: 'FD00::/48'}, masquerade: false, nodeSelector: {matchLabels: {a: b}}}"))
	f.Add([]byte("metadata: {name: c}\nspec: {ipv4: {cidr: 10.0.0.0/30}, ipv6: {cidr: '::ffff:0:0/96', blockSize: 126}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object v1alpha1.IPPool
		if yaml.UnmarshalStrict(raw, &object) != nil {
			return
		}
		wrong := object.Validate()
		pool, err := Pool(&object)
		if (err == nil) != (len(wrong) == 0) {
			t.Fatalf("mistakes %v, but the conversion says %v", wrong, err)
		}
		if err != nil {
			return
		}
		if len(pool.Ranges) == 0 {
			t.Errorf("%+v has no range", pool)
		}
		for _, r := range pool.Ranges {
			longest := r.CIDR.Addr().BitLen() - 2
			if r.BlockBits < r.CIDR.Bits() || r.BlockBits > longest || r.BlockBits-r.CIDR.Bits() > 24 || r.CIDR != r.CIDR.Masked() {
				t.Errorf("blocks of /%d do not fit %s", r.BlockBits, r.CIDR)
			}
		}
		for _, p := range pool.Reserved {
			if !inside([]netip.Prefix{pool.Ranges[0].CIDR, pool.Ranges[len(pool.Ranges)-1].CIDR}, p) {
				t.Errorf("%s is outside of %v", p, pool.Ranges)
			}
		}
	})
}
