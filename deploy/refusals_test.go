// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/test/apiserver"
)

// door is the API server that objects have to get past.
type door struct {
	client dynamic.Interface
}

func newDoor(t *testing.T) door {
	t.Helper()
	s := apiserver.Start(t)
	s.ApplyCRDs("chart/crds")
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(apiserver.Admin))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return door{client}
}

var resources = map[string]string{
	v1alpha1.IPPoolKind: "ippools", v1alpha1.SubnetLeaseKind: "subnetleases", v1alpha1.AddressClaimKind: "addressclaims",
}

// refusal returns why the API server does not take the object; nil if it would.
// Every other error ends the test.
func (d door) refusal(t fataler, object map[string]any) error {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	resource := d.client.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: resources[u.GetKind()]})
	var in dynamic.ResourceInterface = resource
	if ns := u.GetNamespace(); ns != "" {
		in = resource.Namespace(ns)
	}
	_, err := in.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err != nil && !apierrors.IsInvalid(err) {
		t.Fatalf("%v: %v", object, err)
	}
	return err
}

type validated interface{ Validate() field.ErrorList }

// mistakes returns what Weft itself finds wrong with the object.
func mistakes(t fataler, object map[string]any) field.ErrorList {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%v", err)
	}
	typed := map[string]validated{
		v1alpha1.IPPoolKind: &v1alpha1.IPPool{}, v1alpha1.SubnetLeaseKind: &v1alpha1.SubnetLease{}, v1alpha1.AddressClaimKind: &v1alpha1.AddressClaim{},
	}[object["kind"].(string)]
	if err := yaml.UnmarshalStrict(raw, typed); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return typed.Validate()
}

// onlyWeft are the mistakes that the API server cannot see: rules know of the
// metadata only the name, and the parts of a label selector have no bounds, so
// that looking at each of them would cost too much.
func onlyWeft(e *field.Error) bool {
	return strings.HasPrefix(e.Field, "metadata.ownerReferences[") ||
		strings.HasPrefix(e.Field, "spec.nodeSelector.matchLabels") ||
		strings.HasPrefix(e.Field, "spec.nodeSelector.matchExpressions[") && e.Type == field.ErrorTypeInvalid &&
			(strings.HasSuffix(e.Field, ".key") || strings.Contains(e.Field, ".values["))
}

// What Weft takes the API server takes, always. What Weft refuses the API server
// refuses, but for what only Weft sees.
func TestDoorAgreesWithWeft(t *testing.T) {
	d := newDoor(t)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			object := anyObject.Draw(t, "object")
			errs, refusal := mistakes(t, object), d.refusal(t, object)
			seen[fmt.Sprintf("%s, refused: %t", object["kind"], refusal != nil)]++
			switch text, _ := json.Marshal(object); {
			case len(errs) == 0 && refusal != nil:
				t.Fatalf("%s\nis good, but the API server says: %v", text, refusal)
			case refusal == nil && slices.ContainsFunc(errs, func(e *field.Error) bool { return !onlyWeft(e) }):
				t.Fatalf("%s\nis taken by the API server, but Weft says: %v", text, errs.ToAggregate())
			}
		}
	})
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		for _, refused := range []bool{false, true} {
			if what := fmt.Sprintf("%s, refused: %t", kind, refused); seen[what] < 50 {
				t.Errorf("only %d times: %s; the test tests nothing", seen[what], what)
			}
		}
	}
}

// refused are objects that a person could write, and what that person is told.
var refused = map[string]string{
	"host bits":                 `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.1/16}}}`,
	"no CIDR":                   `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: lots}}}`,
	"other family":              `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: "fd00::/48"}}}`,
	"special addresses":         `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 169.254.0.0/16}}}`,
	"range too small":           `{kind: IPPool, metadata: {name: a}, spec: {ipv6: {cidr: "fd00::/127"}}}`,
	"block larger than range":   `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.0/28, blockSize: 24}}}`,
	"block too small":           `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.0/16, blockSize: 31}}}`,
	"too many blocks":           `{kind: IPPool, metadata: {name: a}, spec: {ipv6: {cidr: "fd00::/32"}}}`,
	"nothing":                   `{kind: IPPool, metadata: {name: a}, spec: {}}`,
	"reserved outside":          `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.0/16}, ipv6: {cidr: "fd00:42::/48"}, reserved: [10.42.1.1, 10.43.0.0/24]}}`,
	"reserved with host bits":   `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.0/16}, reserved: [10.42.1.1/24]}}`,
	"unknown operator":          `{kind: IPPool, metadata: {name: a}, spec: {ipv4: {cidr: 10.42.0.0/16}, nodeSelector: {matchExpressions: [{key: a, operator: Like}]}}}`,
	"lease of another name":     `{kind: SubnetLease, metadata: {name: 10-42-4-0-24}, spec: {subnet: 10.42.3.0/24, nodeName: n1}}`,
	"lease of nobody's address": `{kind: SubnetLease, metadata: {name: 10-42-3-7-32}, spec: {subnet: 10.42.3.7/32, nodeName: n1}}`,
	"lease of a pod's block":    `{kind: SubnetLease, metadata: {name: 10-42-3-0-24}, spec: {subnet: 10.42.3.0/24, nodeName: n1, pod: shop/web-0}}`,
	"addresses of one family":   `{kind: SubnetLease, metadata: {name: 10-42-3-0-24}, spec: {subnet: 10.42.3.0/24, nodeName: n1, nodeAddresses: [192.0.2.1, 192.0.2.2]}}`,
	"multicast MAC":             `{kind: SubnetLease, metadata: {name: 10-42-3-0-24}, spec: {subnet: 10.42.3.0/24, nodeName: n1, vxlan: {mac: "01:02:03:04:05:06", vni: 119, port: 4789}}}`,
	"claim of other family":     `{kind: AddressClaim, metadata: {name: a, namespace: default}, spec: {ipv4: "fd00:42::7"}}`,
	"claim in other spelling":   `{kind: AddressClaim, metadata: {name: a, namespace: default}, spec: {ipv6: "FD00:42:0::7"}}`,
	"claim of nothing":          `{kind: AddressClaim, metadata: {name: a, namespace: default}, spec: {}}`,
}

func TestRefusals(t *testing.T) {
	d := newDoor(t)
	var said strings.Builder
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(refused[name]), &object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		object["apiVersion"] = v1alpha1.APIVersion
		err := d.refusal(t, object)
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Errorf("%s: it is not refused", name)
			continue
		}
		fmt.Fprintf(&said, "# %s: %s\n", name, refused[name])
		for _, cause := range status.Status().Details.Causes {
			fmt.Fprintf(&said, "%s: %s\n", cause.Field, cause.Message)
		}
		said.WriteString("\n")
	}
	golden(t, "testdata/refusals.txt", said.String())
}
