// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
)

// Target says which cluster and which of its nodes.
type Target struct {
	Kubeconfig string // file; "": as kubectl finds it
	Context    string // "": the kubeconfig's current one
	Namespace  string // that the agents run in
	Node       string // "": all
	// Timeout is how long one node may take to answer; 0: as long as it likes.
	Timeout time.Duration
}

// Selector finds the agents' pods: the labels that the manifests give them.
const Selector = "app.kubernetes.io/name=weft,app.kubernetes.io/component=agent"

// container is the agent's, in its pod.
const container = "agent"

// cluster is a connection to an API server.
type cluster struct {
	config *rest.Config
	core   *rest.RESTClient
	params runtime.ParameterCodec
	target Target
}

// Run executes `weft ARGS` on the nodes and prints what each of them answers, in
// the order of their names: its standard output to stdout, everything else to
// stderr, headings too. It returns an error if a node could not be asked, or
// answered with one.
func Run(ctx context.Context, t Target, args []string, stdout, stderr io.Writer) error {
	c, err := connect(t)
	if err != nil {
		return err
	}
	pods, err := c.agents(ctx)
	if err != nil {
		return err
	}
	command := append([]string{"/weft"}, args...)
	return collect(ctx, pods, t.Timeout, stdout, stderr, func(ctx context.Context, pod *corev1.Pod, stdout, stderr io.Writer) error {
		return c.exec(ctx, pod, command, stdout, stderr)
	})
}

func connect(t Target) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
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
		return nil, err
	}
	return &cluster{config: config, core: core, params: runtime.NewParameterCodec(scheme), target: t}, nil
}

// agents returns the agents' pods, by node.
func (c *cluster) agents(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	options := metav1.ListOptions{LabelSelector: Selector}
	if c.target.Node != "" {
		options.FieldSelector = "spec.nodeName=" + c.target.Node
	}
	err := c.core.Get().Namespace(c.target.Namespace).Resource("pods").VersionedParams(&options, c.params).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("list the agents' pods: %w", err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning })
	if len(pods) == 0 {
		where := "node " + c.target.Node
		if c.target.Node == "" {
			where = "any node"
		}
		return nil, fmt.Errorf("no agent runs on %s: there is no running pod with labels %s in namespace %s; see: kubectl -n %s get pods -o wide",
			where, Selector, c.target.Namespace, c.target.Namespace)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return pods, nil
}

func (c *cluster) exec(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error {
	url := c.core.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, c.params).URL()
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", url.String())
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // errors are returned
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
}
