// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const goodPool = `
apiVersion: weft.dev/v1alpha1
kind: IPPool
metadata: {name: default}
spec:
  ipv4: {cidr: 10.42.0.0/16, blockSize: 26}
  ipv6: {cidr: "fd00:42::/48", blockSize: 64}
  reserved: [10.42.0.0/28, 10.42.255.255, "fd00:42::/64"]
  masquerade: false
  nodeSelector:
    matchLabels: {zone: a}
    matchExpressions: [{key: gpu, operator: DoesNotExist}]
`

func parsePool(t *testing.T, text string) *IPPool {
	t.Helper()
	var p IPPool
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

func TestGoodPools(t *testing.T) {
	for name, spec := range map[string]string{
		"everything":               goodPool,
		"IPv4 only":                "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}}",
		"IPv6 only":                "metadata: {name: a}\nspec: {ipv6: {cidr: 'fd00::/48'}}",
		"one block":                "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/24, blockSize: 24}}",
		"smallest blocks":          "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/30, blockSize: 30}, ipv6: {cidr: 'fd00::/126', blockSize: 126}}",
		"as many blocks as may be": "metadata: {name: a}\nspec: {ipv6: {cidr: 'fd00::/40', blockSize: 64}}",
		"all reserved":             "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/24}, reserved: [10.0.0.0/24]}",
		"empty selector":           "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/24}, nodeSelector: {}}",
	} {
		t.Run(name, func(t *testing.T) {
			if errs := parsePool(t, spec).Validate(); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func TestPoolDefaults(t *testing.T) {
	cases := map[string]struct {
		spec       string
		ipv4, ipv6 int32
	}{
		"both":                 {"{ipv4: {cidr: 10.0.0.0/16}, ipv6: {cidr: 'fd00::/48'}}", 24, 64},
		"the CIDR's if longer": {"{ipv4: {cidr: 10.0.0.0/28}, ipv6: {cidr: 'fd00::/80'}}", 28, 80},
		"the same length":      {"{ipv4: {cidr: 10.0.0.0/24}, ipv6: {cidr: 'fd00::/64'}}", 24, 64},
		"given ones stay":      {"{ipv4: {cidr: 10.0.0.0/16, blockSize: 20}, ipv6: {cidr: 'fd00::/48', blockSize: 56}}", 20, 56},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := parsePool(t, "metadata: {name: a}\nspec: "+c.spec)
			p.Default()
			if *p.Spec.IPv4.BlockSize != c.ipv4 || *p.Spec.IPv6.BlockSize != c.ipv6 {
				t.Errorf("block sizes %d and %d, want %d and %d", *p.Spec.IPv4.BlockSize, *p.Spec.IPv6.BlockSize, c.ipv4, c.ipv6)
			}
			if !*p.Spec.Masquerade || p.Spec.NodeSelector != nil {
				t.Errorf("masquerade %t, selector %v", *p.Spec.Masquerade, p.Spec.NodeSelector)
			}
			if errs := p.Validate(); len(errs) > 0 {
				t.Errorf("the defaults are wrong: %v", errs.ToAggregate())
			}
		})
	}
	given := parsePool(t, goodPool)
	if given.Default(); *given.Spec.Masquerade {
		t.Error("masquerade: false is overridden")
	}
}

func TestValidateDoesNotChangeThePool(t *testing.T) {
	p := parsePool(t, "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}}")
	p.Validate()
	if p.Spec.IPv4.BlockSize != nil || p.Spec.Masquerade != nil {
		t.Errorf("the pool has become %+v", p.Spec)
	}
}

func TestPoolMistakes(t *testing.T) {
	cases := map[string]struct{ from, to, field, want string }{
		"no name":           {"{name: default}", "{}", "metadata.name", "Required"},
		"bad name":          {"{name: default}", "{name: De_fault}", "metadata.name", "RFC 1123"},
		"no CIDR":           {"cidr: 10.42.0.0/16, ", "", "spec.ipv4.cidr", "Required value: want a CIDR"},
		"garbage CIDR":      {"10.42.0.0/16", "lots", "spec.ipv4.cidr", "want a CIDR such as"},
		"no length":         {"10.42.0.0/16", "10.42.0.0", "spec.ipv4.cidr", "want a CIDR such as"},
		"host bits":         {"10.42.0.0/16", "10.42.0.1/16", "spec.ipv4.cidr", "it should be 10.42.0.0/16"},
		"0 bits":            {"10.42.0.0/16", "0.0.0.0/0", "spec.ipv4.cidr", "whole address space"},
		"IPv6 in ipv4":      {"10.42.0.0/16, blockSize: 26", "'fd00:43::/48'", "spec.ipv4.cidr", "want an IPv4 CIDR"},
		"IPv4 in ipv6":      {`"fd00:42::/48"`, "10.43.0.0/16", "spec.ipv6.cidr", "want an IPv6 CIDR"},
		"loopback":          {"10.42.0.0/16", "127.42.0.0/16", "spec.ipv4.cidr", "loopback"},
		"around loopback":   {"10.42.0.0/16", "0.0.0.0/1", "spec.ipv4.cidr", "unspecified"},
		"link-local":        {"10.42.0.0/16", "169.254.0.0/16", "spec.ipv4.cidr", "link-local"},
		"multicast":         {`"fd00:42::/48"`, "'ff05::/48'", "spec.ipv6.cidr", "multicast"},
		"IPv4-mapped":       {`"fd00:42::/48"`, "'::ffff:10.42.0.0/112'", "spec.ipv6.cidr", "IPv4-mapped"},
		"too small for pod": {"cidr: 10.42.0.0/16, blockSize: 26", "cidr: 10.42.0.0/31", "spec.ipv4.cidr", "want /30 or larger"},
		"too small in IPv6": {`cidr: "fd00:42::/48", blockSize: 64`, "cidr: 'fd00:42::/127'", "spec.ipv6.cidr", "want /126 or larger"},
		"smaller than its block": {"10.42.0.0/16, blockSize: 26", "10.42.0.0/28, blockSize: 24", "spec.ipv4.blockSize",
			"a block of /24 is larger than the range 10.42.0.0/28; want a prefix length of 28 to 30"},
		"block without pods":      {"blockSize: 26", "blockSize: 31", "spec.ipv4.blockSize", "a block of /31 is too small for pods; want a prefix length of 16 to 30"},
		"block without pods, v6":  {`"fd00:42::/48", blockSize: 64`, "'fd00:42::/112', blockSize: 127", "spec.ipv6.blockSize", "too small for pods; want a prefix length of 112 to 126"},
		"too many blocks":         {`"fd00:42::/48", blockSize: 64`, "'fd00:42::/32', blockSize: 57", "spec.ipv6.blockSize", "more than 2^24 blocks of /57 in fd00:42::/32; want a prefix length of 32 to 56"},
		"too many by default":     {`"fd00:42::/48", blockSize: 64`, "'fd00::/8'", "spec.ipv6.blockSize", "more than 2^24 blocks of /64 in fd00::/8"},
		"block size 0":            {"blockSize: 26", "blockSize: 0", "spec.ipv4.blockSize", "want a prefix length of 16 to 30"},
		"negative block size":     {"blockSize: 26", "blockSize: -1", "spec.ipv4.blockSize", "want a prefix length of 16 to 30"},
		"huge block size":         {"blockSize: 26", "blockSize: 2000000000", "spec.ipv4.blockSize", "want a prefix length of 16 to 30"},
		"reserved garbage":        {"10.42.255.255", "the-last", "spec.reserved[1]", "want a CIDR such as"},
		"reserved with zone":      {"10.42.255.255", "'fd00:42::1%eth0'", "spec.reserved[1]", "want a CIDR such as"},
		"reserved host bits":      {"10.42.255.255", "10.42.255.255/24", "spec.reserved[1]", "it should be 10.42.255.0/24 or 10.42.255.255"},
		"reserved outside":        {"10.42.255.255", "10.43.0.0", "spec.reserved[1]", "is not inside 10.42.0.0/16 or fd00:42::/48"},
		"reserved larger":         {"10.42.0.0/28", "10.0.0.0/8", "spec.reserved[0]", "is not inside"},
		"selector operator":       {"DoesNotExist", "Like", "spec.nodeSelector.matchExpressions[0].operator", "operator"},
		"selector without values": {"DoesNotExist", "In", "spec.nodeSelector.matchExpressions[0].values", "Required"},
		"selector with values":    {"DoesNotExist", "DoesNotExist, values: [a]", "spec.nodeSelector.matchExpressions[0].values", "may not be specified"},
		"selector key":            {"key: gpu", "key: 'g p u'", "spec.nodeSelector.matchExpressions[0].key", "g p u"},
		"selector label":          {"{zone: a}", "{zone: 'a b'}", "spec.nodeSelector.matchLabels", "a b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodPool, c.from, c.to, 1)
			if text == goodPool {
				t.Fatal("the case changes nothing")
			}
			// What is reserved must not add mistakes of its own.
			if !strings.HasPrefix(c.field, "spec.reserved") {
				text = strings.Replace(text, `reserved: [10.42.0.0/28, 10.42.255.255, "fd00:42::/64"]`, "", 1)
			}
			wantOne(t, parsePool(t, text).Validate(), c.field, c.want)
		})
	}
}

// wantOne: there is this mistake and no other.
func wantOne(t *testing.T, errs field.ErrorList, path, want string) {
	t.Helper()
	if len(errs) != 1 || errs[0].Field != path || !strings.Contains(errs[0].Error(), want) {
		t.Errorf("mistakes %v, want one of %s with %q", errs.ToAggregate(), path, want)
	}
}

func TestAllMistakesOfAPoolAreListed(t *testing.T) {
	p := parsePool(t, `
metadata: {}
spec:
  ipv4: {cidr: 10.42.0.1/16, blockSize: 40}
  ipv6: {cidr: "fd00::/48", blockSize: 16}
  reserved: [x, 10.42.0.0/33, "fd00:0:1::"]
  nodeSelector: {matchExpressions: [{key: a, operator: b}]}
`)
	var fields []string
	for _, e := range p.Validate() {
		fields = append(fields, e.Field)
	}
	// Whether fd00:0:1:: is inside the IPv4 range is unknown while that is wrong.
	want := "metadata.name spec.ipv4.cidr spec.ipv4.blockSize spec.ipv6.blockSize spec.reserved[0] spec.reserved[1] " +
		"spec.nodeSelector.matchExpressions[0].operator"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("mistakes in %s\nwant        %s", got, want)
	}
	wantOne(t, parsePool(t, "metadata: {name: a}\nspec: {}").Validate(), "spec", "want ipv4, ipv6 or both")
}

func TestReservedIsBounded(t *testing.T) {
	p := parsePool(t, "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}}")
	for range 1024 {
		p.Spec.Reserved = append(p.Spec.Reserved, "10.0.0.1")
	}
	if errs := p.Validate(); len(errs) > 0 {
		t.Errorf("1024 entries: %v", errs.ToAggregate())
	}
	p.Spec.Reserved = append(p.Spec.Reserved, "10.0.0.1")
	wantOne(t, p.Validate(), "spec.reserved", "at most 1024")
}

func TestMistakesComeInOneOrder(t *testing.T) {
	p := parsePool(t, "metadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}, nodeSelector: {matchLabels: {a: '?', b: '!', c: '%', d: '&', e: '='}}}")
	first := p.Validate().ToAggregate().Error()
	for range 20 {
		if again := p.Validate().ToAggregate().Error(); again != first {
			t.Fatalf("mistakes are\n%s\nand then\n%s", first, again)
		}
	}
}
