// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// document is a valid configuration with each key that we read.
func document() map[string]any {
	var doc map[string]any
	err := json.Unmarshal(request(Add, `"type":"weft-cni"`, `"stateDir":"/s"`, `"timeout":5`, `"offlineAdd":false`, `"logFile":"/l"`,
		`"repeatAdd":"return"`, `"mtu":1400`, `"mac":"02:00:00:00:00:01"`, `"ipMasq":false`, `"sysctl":{"net.core.somaxconn":"1"}`,
		`"sysctlAllow":["net.**"]`, `"dns":{"search":["a"]}`, `"args":{"cni":{"ips":["10.1.0.9"]}}`,
		`"runtimeConfig":{"ips":["10.1.0.9"],"mac":"02:00:00:00:00:01","dns":{"servers":["a"]},"ipRanges":[]}`,
		section(`"ranges":[[{"subnet":"10.1.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"cooldown":5`), prev,
		`"cni.dev/valid-attachments":[]`).Stdin, &doc)
	if err != nil {
		panic(err)
	}
	return doc
}

// junk is what an older or newer release, or a hand, may have put somewhere.
func junk() *rapid.Generator[any] {
	return rapid.SampledFrom([]any{
		nil, true, -1, 3.25, 1e300, "", "x y", "/a b", "\u0000", []any{}, []any{nil, 5, "x"}, map[string]any{}, map[string]any{"type": 5, "cni": "x"},
	})
}

// corrupt replaces one value somewhere below v.
func corrupt(t *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 && rapid.Bool().Draw(t, "deeper") {
			key := rapid.SampledFrom(sortedKeys(v)).Draw(t, "key")
			v[key] = corrupt(t, v[key])
			return v
		}
	case []any:
		if len(v) > 0 && rapid.Bool().Draw(t, "deeper") {
			v[0] = corrupt(t, v[0])
			return v
		}
	}
	return junk().Draw(t, "junk")
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	// rapid needs the same order for the same seed.
	for i := range keys {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
		}
	}
	return keys
}

// Runtimes replay at DEL what they passed at ADD, whatever has become of our
// configuration since. Whichever values are wrong, and however, it goes on; and
// the other fields are still read.
func TestDelSurvivesAnyCorruption(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := document()
		spoilt := make(map[string]bool)
		for range rapid.IntRange(1, 4).Draw(t, "corruptions") {
			key := rapid.SampledFrom(sortedKeys(doc)).Draw(t, "key")
			if key != "name" && key != "cniVersion" {
				doc[key] = corrupt(t, doc[key])
				spoilt[key] = true
			}
		}
		stdin, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		call := Call{Command: Del, ContainerID: "c1", Ifname: "eth0", Stdin: stdin}
		if _, err := ParseIPAMCall(call); err != nil {
			t.Fatalf("weft-ipam: %v\n%s", err, stdin)
		}
		cfg, cniErr := ParseConfig(call)
		if cniErr != nil {
			t.Fatalf("weft-cni: %v\n%s", cniErr, stdin)
		}
		if !spoilt["stateDir"] && cfg.StateDir != "/s" || !spoilt["logFile"] && cfg.LogFile != "/l" ||
			!spoilt["timeout"] && cfg.Timeout.Seconds() != 5 || !spoilt["ipam"] && !cfg.IPAM.Builtin() ||
			!spoilt["prevResult"] && cfg.PrevResult == nil || !spoilt["ipMasq"] && cfg.IPMasq {
			t.Fatalf("a field that was in order is lost: %+v, spoilt %v\n%s", cfg, spoilt, stdin)
		}
	})
}

// ADD either takes a configuration whole or says why not; the same document
// that is not corrupted passes every verb.
func TestEveryVerbTakesTheWholeDocument(t *testing.T) {
	stdin, err := json.Marshal(document())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{Add, Check, Del, GC, Status} {
		call := Call{Command: verb, ContainerID: "c1", Netns: "/n", Ifname: "eth0", Stdin: stdin}
		mustParse(t, call)
		_, err := ParseIPAMCall(call)
		wantNoError(t, err)
	}
}
