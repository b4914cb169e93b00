// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/api/v1alpha1"
)

// schemaNode is a place in the values, with what schema and program say of it.
type schemaNode struct {
	path   []string // keys; "0" is an element of a list, "a" a key of a map
	schema map[string]any
	goType reflect.Type
}

func (n schemaNode) String() string { return strings.Join(n.path, ".") }

// valuesSchema is the schema of the chart's values.
type valuesSchema struct {
	t           *testing.T
	Properties  map[string]map[string]any `json:"properties"`
	Definitions map[string]map[string]any `json:"definitions"`
}

func loadSchema(t *testing.T) valuesSchema {
	t.Helper()
	raw, err := os.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := valuesSchema{t: t}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// resolved follows a reference.
func (s valuesSchema) resolved(schema map[string]any) map[string]any {
	s.t.Helper()
	ref, there := schema["$ref"].(string)
	if !there {
		return schema
	}
	target, there := s.Definitions[strings.TrimPrefix(ref, "#/definitions/")]
	if !there || len(schema) != 1 {
		s.t.Fatalf("%v: no such definition, or more than a reference", schema)
	}
	return target
}

// nodes lists the node and all below it, and checks that schema and type have
// the same keys everywhere.
func (s valuesSchema) nodes(n schemaNode) []schemaNode {
	s.t.Helper()
	n.schema = s.resolved(n.schema)
	for n.goType.Kind() == reflect.Pointer {
		n.goType = n.goType.Elem()
	}
	list := []schemaNode{n}
	below := func(key string, schema any, goType reflect.Type) {
		child, there := schema.(map[string]any)
		if !there {
			s.t.Fatalf("%s: %s has no schema", n, key)
		}
		list = append(list, s.nodes(schemaNode{append(slices.Clone(n.path), key), child, goType})...)
	}
	switch {
	case isText(n.goType):
	case n.goType.Kind() == reflect.Slice:
		below("0", n.schema["items"], n.goType.Elem())
	case n.goType.Kind() == reflect.Map:
		below("a", n.schema["additionalProperties"], n.goType.Elem())
	case n.isObject():
		properties, _ := n.schema["properties"].(map[string]any)
		fields := jsonFields(n.goType)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(properties))); diff != "" {
			s.t.Fatalf("%s: keys (-%s +schema):\n%s", n, n.goType, diff)
		}
		if n.schema["additionalProperties"] != false {
			s.t.Errorf("%s: the schema takes unknown keys", n)
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			below(key, properties[key], fields[key])
		}
	}
	return list
}

// isText: the type is a string in JSON, whatever it is in Go.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t == reflect.TypeFor[netip.Addr]() || t == reflect.TypeFor[netip.Prefix]() || t == reflect.TypeFor[v1alpha1.Duration]()
}

// jsonFields returns the types of a struct's fields by their keys.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[key] = t.Field(i).Type
	}
	return fields
}

// isObject: it has the keys of a Go type.
func (n schemaNode) isObject() bool { return n.goType.Kind() == reflect.Struct && !isText(n.goType) }

// isLeaf: there is nothing below.
func (n schemaNode) isLeaf() bool {
	return !n.isObject() && n.goType.Kind() != reflect.Slice && n.goType.Kind() != reflect.Map
}

// configNodes are all places in `config`.
func configNodes(t *testing.T) []schemaNode {
	t.Helper()
	s := loadSchema(t)
	return s.nodes(schemaNode{nil, s.Properties["config"], reflect.TypeFor[v1alpha1.AgentConfiguration]()})
}

// The keys of the schema are those of the types, at every depth; pool.spec is
// the same as config.cluster.initialPool.
func TestSchemaHasTheKeysOfTheTypes(t *testing.T) {
	nodes := configNodes(t)
	at := slices.IndexFunc(nodes, func(n schemaNode) bool { return n.String() == "cluster.initialPool" })
	if at < 0 || nodes[at].goType != reflect.TypeFor[v1alpha1.IPPoolSpec]() {
		t.Fatal("cluster.initialPool is not where it was")
	}
	s := loadSchema(t)
	spec := s.Properties["pool"]["properties"].(map[string]any)["spec"].(map[string]any)
	if diff := cmp.Diff(nodes[at].schema, s.resolved(spec)); diff != "" {
		t.Errorf("pool.spec and config.cluster.initialPool differ:\n%s", diff)
	}
	if len(nodes) < 60 {
		t.Errorf("%d nodes; the test tests nothing", len(nodes))
	}
}
