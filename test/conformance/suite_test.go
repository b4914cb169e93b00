// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"
)

// TestCasesAreWellFormed keeps the report readable: unique ids, complete
// entries, and deviations that name cases which exist.
func TestCasesAreWellFormed(t *testing.T) {
	ids := map[string]bool{}
	for _, k := range allCases() {
		if ids[k.ID] {
			t.Errorf("case %s exists twice", k.ID)
		}
		ids[k.ID] = true
		if k.Spec == "" || k.Claim == "" || k.Run == nil || (k.Level != MUST && k.Level != SHOULD) {
			t.Errorf("case %s is incomplete", k.ID)
		}
	}
	for _, s := range subjects() {
		for id := range s.Deviations {
			if !ids[id] {
				t.Errorf("%s: deviation %s names no case", s.Name, id)
			}
		}
		if s.Has(FeatureWeft) && len(s.Deviations) > 0 {
			t.Errorf("%s: Weft may not have deviations: %v", s.Name, s.Deviations)
		}
	}
}

// TestCasesCanFail runs each case against a plugin that silently succeeds
// whatever it is asked and one that silently fails. No plugin can be that
// right: a case that accepts both demands nothing.
func TestCasesCanFail(t *testing.T) {
	always := func(name, program string, like *Subject) *Subject {
		s := *like
		s.Name, s.Binary, s.IPAM, s.Deviations, s.Daemon = name, program, program, nil, nil
		return &s
	}
	for _, k := range allCases() {
		like := firstWith(k.Needs)
		yes, no := always("true", "/bin/true", like), always("false", "/bin/false", like)
		t.Run(k.ID, func(t *testing.T) {
			if !k.Serial {
				t.Parallel()
			}
			if runCase(yes, &k) == nil && runCase(no, &k) == nil {
				t.Error("accepts both a plugin that does nothing and one that refuses everything")
			}
		})
	}
}

// firstWith returns a subject to take the configuration from.
func firstWith(needs Feature) *Subject {
	for _, s := range []*Subject{ptp(), thin(), thick()} {
		if s.Has(needs) {
			return s
		}
	}
	panic("a case needs what no subject has")
}

// TestShapeRejects proves the shape checker on hand-made results.
func TestShapeRejects(t *testing.T) {
	good := map[string]string{
		"0.2.0": `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]},"dns":{}}`,
		"0.4.0": `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"version":"4","address":"10.0.0.2/24","interface":0}]}`,
		"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"address":"10.0.0.2/24"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]}`,
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1500}],"ips":[{"address":"10.0.0.2/24"}],"routes":[{"dst":"0.0.0.0/0","scope":0}]}`,
	}
	for version, result := range good {
		if faults := resultShape(version).check("result", []byte(result)); faults != nil {
			t.Errorf("%s: %v", version, faults)
		}
	}
	bad := []struct{ version, result string }{
		{"0.2.0", good["0.4.0"]},
		{"0.4.0", good["1.0.0"]},
		{"1.0.0", good["1.1.0"]},
		{"1.0.0", good["0.4.0"]},
		{"1.1.0", good["0.2.0"]},
		{"1.1.0", `{"cniVersion":"1.1.0","interfaces":[{}],"ips":[]}`},
		{"1.1.0", `{"cniVersion":"1.1.0","interfaces":[],"ips":[],"code":0}`},
		{"1.1.0", ``},
	}
	for _, b := range bad {
		if resultShape(b.version).check("result", []byte(b.result)) == nil {
			t.Errorf("%s: accepts %s", b.version, b.result)
		}
	}
}

// TestFailureRejects proves the parser of error objects.
func TestFailureRejects(t *testing.T) {
	for _, stdout := range []string{
		``, `null`, `{}`, `oops`, `{"code":7}`, `{"msg":"x"}`, `{"code":"7","msg":"x"}`,
		`{"code":7,"msg":"x","hint":"y"}`, `{"code":7,"msg":"x"}{}`, `log line` + "\n" + `{"code":7,"msg":"x"}`,
	} {
		if f, err := parseFailure([]byte(stdout)); err == nil {
			t.Errorf("accepts %q as %+v", stdout, f)
		}
	}
	if _, err := parseFailure([]byte(`{"cniVersion":"1.1.0","code":7,"msg":"x","details":"y"}` + "\n")); err != nil {
		t.Error(err)
	}
}
