// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
)

// whole are configurations that are good; together they have every key.
var whole = []string{`
cluster:
  kubernetes: {}
  leaseIdleAfter: 5m
  initialPool:
    ipv4: {cidr: 10.42.0.0/16}
    ipv6: {cidr: "fd00:42::/48"}
    reserved: [10.42.0.0/28]
    nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
network: {backend: {}, nodeAddresses: [192.0.2.1], routes: [{dst: 0.0.0.0/0}], masqueradeExclude: [10.0.0.0/8]}
cni: {}
tracing: {endpoint: "http://collector:4318"}
`, `
cluster: {kubernetes: {}, initialPool: {ipv4: {cidr: 10.42.0.0/16}, nodeSelector: {matchExpressions: [{key: a, operator: Exists}]}}}
`, `
cluster: {directory: /var/lib/weft}
`, `
network: {ranges: [[{subnet: 10.42.0.0/20, exclude: [10.42.4.0/24]}]], routes: [{dst: 0.0.0.0/0}]}
`}

func configuration(t *testing.T, text string) map[string]any {
	t.Helper()
	var c map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return c
}

// with sets a value at a path, and makes what is missing on the way.
func with(at any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "0" {
		list, _ := at.([]any)
		if len(list) == 0 {
			return []any{with(nil, path[1:], value)}
		}
		return append([]any{with(list[0], path[1:], value)}, list[1:]...)
	}
	object, _ := at.(map[string]any)
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	object[path[0]] = with(object[path[0]], path[1:], value)
	return object
}

// agentTakes: there is a configuration with that value at that place with
// which the agent would start.
func agentTakes(t *testing.T, path []string, value any) bool {
	t.Helper()
	t.Setenv("NODE_NAME", "node1")
	for _, text := range whole {
		base := with(configuration(t, text), []string{"apiVersion"}, v1alpha1.APIVersion)
		base = with(base, []string{"kind"}, v1alpha1.AgentConfigurationKind)
		raw, err := json.Marshal(with(base, path, value))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v1alpha1.ParseAgentConfiguration(raw); err == nil {
			return true
		}
	}
	return false
}

var pointer = regexp.MustCompile(`at '/config([^']*)'`)

// chartRefuses returns the places in `config` that helm names.
func chartRefuses(t *testing.T, config any) map[string]bool {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"config": config})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := renderedWith(t, "--values", file)
	places := map[string]bool{}
	if err == nil {
		return places
	}
	for _, found := range pointer.FindAllStringSubmatch(out, -1) {
		places[strings.ReplaceAll(strings.TrimPrefix(found[1], "/"), "/", ".")] = true
	}
	if len(places) == 0 {
		t.Fatalf("%s\nfails for another reason: %s", raw, out)
	}
	return places
}

// tried are values for leaves of a type: every one is good or wrong at some place.
var tried = map[reflect.Kind][]any{
	reflect.Bool: {true, false, "true", 1, []any{}},
	reflect.Int:  {-1, 0, 1, 67, 68, 30, 31, 126, 127, 255, 256, 1279, 65535, 65536, 16777215, 16777216, 4294967295, 4294967296, 1.5, "1", true, map[string]any{}},
	reflect.String: {"", "auto", "vxlan", "native", "on", "off", "debug", "info", "warn", "error", "text", "json", "INFO", "weft.dev/v1alpha1", "AgentConfiguration",
		"In", "NotIn", "Exists", "DoesNotExist", "Gt", "0", "0s", "1s", "1.5h", "90s", ".5m", "+1m0s", "-1s", "-0s", "1d", "soon", "5", "10m5s", "1h", "24h", "2000ms", "2000000000ns", "2000000us", "2000000µs", "2000000μs",
		"/a", "/a/b c", "/etc/x.conflist", "a/b", "weft", "a-b.c_d", "-a", "node1", "Node_1", ":9119", "127.0.0.1:9119", "[::1]:9119", "9119",
		"http://c:4318", "HTTPS://192.0.2.1:6443", "http:///x", "ftp://a", "c:4318", "10.42.0.0/16", "10.42.0.0/20", "10.42.0.1/16", "10.0.0.0/8", "0.0.0.0/0", "fd00:42::/48",
		"FD00:42:0:0::/64", "::/0", "10.42.0.1", "10.42.4.9", "192.0.2.7", "2001:db8::1", "2001:DB8:0::1", "::ffff:10.0.0.1", "fe80::1%eth0", "lots", 5, true, []any{}, map[string]any{}},
}

// exact: what the schema says of this leaf is all that there is to say.
func exact(n schemaNode) bool {
	if n.path[len(n.path)-1] == "blockSize" {
		return false // it depends on the CIDR
	}
	_, enum := n.schema["enum"]
	return enum || !isText(n.goType)
}

// wrongText: the value is no text where one is wanted, or no duration.
func wrongText(n schemaNode, value any) bool {
	text, ok := value.(string)
	if ok && n.goType == reflect.TypeFor[v1alpha1.Duration]() {
		_, err := time.ParseDuration(text)
		return err != nil
	}
	return isText(n.goType) && !ok
}

// What the agent takes the chart takes. What is of the wrong type, no word of
// a list, or out of its bounds, the chart refuses as the agent does.
func TestSchemaDecidesAsTheAgent(t *testing.T) {
	var leaves []schemaNode
	most := 0
	for _, n := range configNodes(t) {
		if n.isLeaf() {
			leaves = append(leaves, n)
			most = max(most, len(tried[kindOf(n)]))
		}
	}
	taken := map[string]int{}
	for i := range most {
		var config any = map[string]any{}
		for _, n := range leaves {
			if values := tried[kindOf(n)]; i < len(values) {
				config = with(config, n.path, values[i])
			}
		}
		refused := chartRefuses(t, config)
		for _, n := range leaves {
			values := tried[kindOf(n)]
			if i >= len(values) {
				continue
			}
			agent, chart := agentTakes(t, n.path, values[i]), !refused[n.String()]
			if agent && !chart || chart && !agent && (exact(n) || wrongText(n, values[i])) {
				t.Errorf("%s: %#v: the agent takes it: %t, the chart takes it: %t", n, values[i], agent, chart)
			}
			if agent {
				taken[n.String()]++
			}
		}
	}
	for _, n := range leaves {
		if taken[n.String()] == 0 {
			t.Errorf("%s: none of the values is good", n)
		}
	}
}

func kindOf(n schemaNode) reflect.Kind {
	switch kind := n.goType.Kind(); {
	case isText(n.goType):
		return reflect.String
	case kind == reflect.Int32:
		return reflect.Int
	default:
		return kind
	}
}

// Null is what is absent, where something can be absent. A text where a list or
// an object is wanted is refused, and so is a key that does not exist.
func TestSchemaKnowsTheShape(t *testing.T) {
	nodes := configNodes(t)[1:]
	var nulls, strange any
	for _, n := range nodes {
		if n.isLeaf() {
			nulls = with(nulls, n.path, nil)
			continue
		}
		if agentTakes(t, n.path, nil) && chartRefuses(t, with(nil, n.path, nil))[n.String()] {
			t.Errorf("%s: the chart does not take null", n)
		}
		if agentTakes(t, n.path, "text") || !chartRefuses(t, with(nil, n.path, "text"))[n.String()] {
			t.Errorf("%s: a text is taken", n)
		}
		if n.isObject() {
			strange = with(strange, append(slices.Clone(n.path), "strange"), 1)
		}
	}
	refusedNulls, refusedKeys := chartRefuses(t, nulls), chartRefuses(t, strange)
	for _, n := range nodes {
		if n.isLeaf() && refusedNulls[n.String()] && agentTakes(t, n.path, nil) {
			t.Errorf("%s: the chart does not take null", n)
		}
		if n.isObject() && !refusedKeys[n.String()] {
			t.Errorf("%s: an unknown key is taken", n)
		}
	}
}

// Every configuration in the documentation is one that the chart takes, but for
// what is each node's own, or is a value beside it.
func TestDocumentedConfigurationsAreGood(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, example := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		c := configuration(t, example[1])
		if c["kind"] != v1alpha1.AgentConfigurationKind {
			continue
		}
		n++
		for _, key := range []string{"nodeName", "stateDir", "listen"} {
			delete(c, key)
		}
		if cni, is := c["cni"].(map[string]any); is {
			delete(cni, "confFile")
		}
		if refused := chartRefuses(t, c); len(refused) > 0 {
			t.Errorf("the chart refuses %v of\n%s", slices.Sorted(maps.Keys(refused)), example[1])
		}
	}
	if n < 3 {
		t.Errorf("%d examples; the test tests nothing", n)
	}
}
