// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/test/apiserver"
)

// An upgrade brings rules for objects that are stored already. Who has a wrong
// one can change something else of it, mend it, and delete it.
func TestWrongObjectsFromBefore(t *testing.T) {
	s := apiserver.Start(t)
	s.ApplyCRDs(withoutRules(t))
	const group = "apiVersion: " + v1alpha1.APIVersion + "\n"
	s.Apply(group + "kind: IPPool\nmetadata: {name: default}\nspec: {ipv4: {cidr: 10.42.0.1/16}}")
	s.Apply(group + "kind: SubnetLease\nmetadata: {name: other}\nspec: {subnet: 10.42.3.0/24, nodeName: a}")
	s.ApplyCRDs("chart/crds")
	for _, wrong := range []string{"IPPool\nmetadata: {name: new}\nspec: {ipv4: {cidr: 10.43.0.1/16}}", "SubnetLease\nmetadata: {name: new}\nspec: {subnet: 10.42.3.0/24, nodeName: a}"} {
		apiserver.Eventually(t, func() error {
			if _, err := s.Kubectl(group+"kind: "+wrong, "create", "--dry-run=server", "-f", "-"); err == nil {
				return errors.New("the rules are not in effect: " + wrong)
			}
			return nil
		})
	}
	s.MustKubectl("", "label", "ippool/default", "a=b")
	s.MustKubectl("", "label", "subnetlease/other", "a=b")
	s.MustKubectl("", "patch", "ippool/default", "--type=merge", "-p", `{"spec": {"onRequest": true}}`)
	if out, err := s.Kubectl("", "patch", "ippool/default", "--type=merge", "-p", `{"spec": {"ipv4": {"cidr": "10.43.0.1/16"}}}`); err == nil || !strings.Contains(out, "it should be 10.43.0.0/16") {
		t.Errorf("%v: %s; want a refusal of one mistake instead of another", err, out)
	}
	s.MustKubectl("", "patch", "ippool/default", "--type=merge", "-p", `{"spec": {"ipv4": {"cidr": "10.42.0.0/16"}}}`)
	s.MustKubectl("", "delete", "ippool/default", "subnetlease/other")
}

// withoutRules returns a directory with the definitions as they were before
// they had rules.
func withoutRules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("chart/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the definitions: %v, %d files", err, len(files))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition any
		if err := yaml.Unmarshal(raw, &definition); err != nil {
			t.Fatal(err)
		}
		dropRules(definition)
		if raw, err = yaml.Marshal(definition); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func dropRules(at any) {
	switch at := at.(type) {
	case map[string]any:
		delete(at, "x-kubernetes-validations")
		for _, below := range at {
			dropRules(below)
		}
	case []any:
		for _, below := range at {
			dropRules(below)
		}
	}
}
