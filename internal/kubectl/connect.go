// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is a connection to an API server.
type cluster struct {
	config  *rest.Config
	core    *rest.RESTClient
	params  runtime.ParameterCodec
	target  Target
	context string // that is in use; "": there is none, as in a pod
}

func connect(t Target) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = t.Kubeconfig, false
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.Context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, noCluster(err, t, rules, loader)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	core, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	c := &cluster{config: config, core: core, params: runtime.NewParameterCodec(scheme), target: t}
	if raw, err := loader.RawConfig(); err == nil {
		c.context = cmp.Or(t.Context, raw.CurrentContext)
	}
	return c, nil
}

// noCluster says what to do when the kubeconfig names no cluster.
func noCluster(err error, t Target, rules *clientcmd.ClientConfigLoadingRules, loader clientcmd.ClientConfig) error {
	if clientcmd.IsEmptyConfig(err) {
		files := rules.Precedence
		if t.Kubeconfig != "" {
			files = []string{t.Kubeconfig}
		}
		return fmt.Errorf("find the cluster: no cluster in the kubeconfig %s: name another one by --kubeconfig or the variable %s, "+
			"or choose a context: kubectl config get-contexts", strings.Join(files, ", "), clientcmd.RecommendedConfigPathEnvVar)
	}
	if raw, rawErr := loader.RawConfig(); rawErr == nil {
		if name := cmp.Or(t.Context, raw.CurrentContext); raw.Contexts[name] == nil {
			return fmt.Errorf("find the cluster: %w; the kubeconfig has the contexts %s", err, slices.Sorted(maps.Keys(raw.Contexts)))
		}
	}
	return fmt.Errorf("find the cluster: %w", err)
}

// explain adds to what the API server, or the way to it, refuses what can be done.
func (c *cluster) explain(err error) error {
	var late *lateError
	var unreachable *url.Error
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; this command needs the rights: list pods, get and create pods/exec, in the namespace of the agents (-n)", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %s does not accept these credentials; see: kubectl auth whoami", err, c.where())
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.As(err, &late), errors.As(err, &unreachable):
		return fmt.Errorf("%w: %s does not answer; see: kubectl version, kubectl config get-contexts", err, c.where())
	}
	return err
}

// where is the API server in words.
func (c *cluster) where() string {
	if c.context == "" {
		return "the API server " + c.config.Host
	}
	return fmt.Sprintf("the API server %s of context %q", c.config.Host, c.context)
}

// Nodes returns the names of the cluster's nodes.
func Nodes(ctx context.Context, t Target) ([]string, error) {
	c, err := connect(t)
	if err != nil {
		return nil, err
	}
	var names []string
	err = within(ctx, t.Timeout, func(ctx context.Context) error {
		nodes, err := c.nodes(ctx)
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		return err
	})
	return names, err
}
