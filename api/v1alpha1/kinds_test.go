// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

func TestSchemeKnowsTheKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]runtime.Object{
		IPPoolKind: &IPPool{}, IPPoolKind + "List": &IPPoolList{},
		SubnetLeaseKind: &SubnetLease{}, SubnetLeaseKind + "List": &SubnetLeaseList{},
		AddressClaimKind: &AddressClaim{}, AddressClaimKind + "List": &AddressClaimList{},
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
	seen := map[string]bool{}
	for _, example := range examples {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(example[1]), &kind); err != nil {
			t.Fatal(err)
		}
		var errs field.ErrorList
		switch kind.Kind {
		case IPPoolKind:
			errs = parsePool(t, example[1]).Validate()
		case SubnetLeaseKind:
			errs = parseLease(t, example[1]).Validate()
		case AddressClaimKind:
			errs = parseClaim(t, example[1]).Validate()
		default:
			t.Errorf("there is an example of kind %q", kind.Kind)
		}
		if len(errs) > 0 || kind.APIVersion != APIVersion {
			t.Errorf("%s %s: %v", kind.APIVersion, kind.Kind, errs.ToAggregate())
		}
		seen[kind.Kind] = true
	}
	if len(seen) != 3 {
		t.Errorf("docs/api.md has examples of %v, want one of each kind", seen)
	}
}

func TestDeepCopySharesNoMemory(t *testing.T) {
	pool, lease, claim := parsePool(t, goodPool), parseLease(t, goodLease), parseClaim(t, goodClaim)
	pool.Labels, lease.Annotations, claim.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}, map[string]string{"a": "b"}
	claim.Annotations, claim.Finalizers, claim.DeletionTimestamp = map[string]string{"a": "b"}, []string{"x"}, &metav1.Time{}
	pool.Spec.NodeSelector.MatchExpressions[0].Values = []string{"x"}
	remaining := int64(1)
	list := metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: &remaining}
	for _, object := range []runtime.Object{
		pool, lease, claim,
		&IPPoolList{ListMeta: list, Items: []IPPool{*pool}},
		&SubnetLeaseList{ListMeta: list, Items: []SubnetLease{*lease}},
		&AddressClaimList{ListMeta: list, Items: []AddressClaim{*claim}},
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
