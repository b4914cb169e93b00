// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/api/v1alpha1"
)

// The limits of requests, see the package's comment.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

const protobuf = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// raw is an object of Weft's kinds, of which only the envelope has been
// decoded: a spec that makes no sense must not stop the list that it is in.
type raw struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec json.RawMessage `json:"spec,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *raw) DeepCopyObject() runtime.Object {
	dup := &raw{TypeMeta: r.TypeMeta, Spec: slices.Clone(r.Spec)}
	r.DeepCopyInto(&dup.ObjectMeta)
	return dup
}

type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []raw `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	dup := &rawList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&dup.ListMeta)
	for i := range l.Items {
		dup.Items = append(dup.Items, *l.Items[i].DeepCopyObject().(*raw))
	}
	return dup
}

// scheme has the types that are read and written, and no others: the scheme of
// client-go has every type of Kubernetes, and takes memory for each.
var scheme = newScheme()

var parameters = runtime.NewParameterCodec(scheme)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Event{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	for _, kind := range []string{v1alpha1.IPPoolKind, v1alpha1.SubnetLeaseKind, v1alpha1.AddressClaimKind} {
		s.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(kind), &raw{})
		s.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(kind+"List"), &rawList{})
	}
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion)
	return s
}

// rest returns what a client needs to know.
func (c Config) rest() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if c.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags(c.Server, c.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
		}
	} else {
		config, err = rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the service account of this pod (outside of a pod, configure a kubeconfig): %w", err)
		}
		if c.Server != "" {
			config.Host = c.Server
		}
	}
	config.UserAgent = fmt.Sprintf("weft/%s (%s)", c.Version, c.Node)
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.WarningHandlerWithContext = rest.NoWarnings{} // of what others should change
	if c.Observe != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observer{next, c.Observe} })
	}
	return config, nil
}

// clients returns a client of each group, over the same connection.
func clients(config *rest.Config) (core, weft *rest.RESTClient, client *http.Client, err error) {
	client, err = rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open the Kubernetes API: %w", err)
	}
	of := func(group schema.GroupVersion, path, accept, write string) *rest.RESTClient {
		one := rest.CopyConfig(config)
		one.GroupVersion, one.APIPath = &group, path
		one.AcceptContentTypes, one.ContentType = accept, write
		one.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		made, wrong := rest.RESTClientForConfigAndClient(one, client)
		if wrong != nil {
			err = fmt.Errorf("open the Kubernetes API: %w", wrong)
		}
		return made
	}
	core = of(corev1.SchemeGroupVersion, "/api", protobuf, runtime.ContentTypeProtobuf)
	weft = of(v1alpha1.GroupVersion, "/apis", runtime.ContentTypeJSON, runtime.ContentTypeJSON)
	return core, weft, client, err
}
