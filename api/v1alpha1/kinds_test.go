// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestSchemeKnowsTheKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]runtime.Object{
		IPPoolKind: &IPPool{}, IPPoolKind + "List": &IPPoolList{},
		SubnetLeaseKind: &SubnetLease{}, SubnetLeaseKind + "List": &SubnetLeaseList{},
	} {
		got, err := scheme.New(GroupVersion.WithKind(kind))
		if err != nil || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is %T, %v, want %T", kind, got, err, want)
		}
	}
	if GroupVersion.String() != APIVersion {
		t.Errorf("the group is %s, objects say %s", GroupVersion, APIVersion)
	}
}

func TestDocumentedExamplesAreGood(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) != 2 {
		t.Fatalf("docs/api.md has %d examples, want one of each kind", len(examples))
	}
	if errs := parsePool(t, examples[0][1]).Validate(); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	if errs := parseLease(t, examples[1][1]).Validate(); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestDeepCopySharesNoMemory(t *testing.T) {
	pool, lease := parsePool(t, goodPool), parseLease(t, goodLease)
	pool.Labels, lease.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	pool.Spec.NodeSelector.MatchExpressions[0].Values = []string{"x"}
	remaining := int64(1)
	list := metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: &remaining}
	for _, object := range []runtime.Object{
		pool, lease,
		&IPPoolList{ListMeta: list, Items: []IPPool{*pool}},
		&SubnetLeaseList{ListMeta: list, Items: []SubnetLease{*lease}},
	} {
		dup := object.DeepCopyObject()
		if !reflect.DeepEqual(object, dup) {
			t.Errorf("the copy of %+v is %+v", object, dup)
		}
		references := map[uintptr]string{}
		collect(reflect.ValueOf(object), "", references)
		if len(references) < 5 {
			t.Fatalf("%T has only %d references: the test tests nothing", object, len(references))
		}
		copied := map[uintptr]string{}
		collect(reflect.ValueOf(dup), "", copied)
		for at, path := range copied {
			if _, shared := references[at]; shared {
				t.Errorf("%T%s is shared with the copy", object, path)
			}
		}
	}
}

// collect records every piece of memory that v refers to, with its path.
func collect(v reflect.Value, path string, into map[uintptr]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			into[v.Pointer()] = path
			collect(v.Elem(), path, into)
		}
	case reflect.Map:
		if v.Len() > 0 {
			into[v.Pointer()] = path
		}
	case reflect.Slice:
		if v.Len() > 0 {
			into[v.Pointer()] = path
		}
		for i := range v.Len() {
			collect(v.Index(i), path+"[]", into)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				collect(v.Field(i), path+"."+f.Name, into)
			}
		}
	}
}
