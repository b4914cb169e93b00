// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agent is the agent of one node, as the API server knows it.
type agent struct {
	node    string
	pod     *corev1.Pod // nil: the node has none
	silence string      // since when nothing is heard of the node itself; "": it speaks, or may not be asked
}

// selection is who is asked.
type selection struct {
	agents []agent // by node
	one    bool    // the only one, because it was chosen
	note   string  // for the user: why it is not who he expects
}

// choose finds out who is asked: the agent of the node that was named, that of the
// node on which a pod runs, or all.
func (c *cluster) choose(ctx context.Context, pod string) (selection, error) {
	if c.target.Node != "" {
		a, err := c.agentOf(ctx, c.target.Node)
		return selection{agents: []agent{a}, one: true}, err
	}
	node, note, err := c.place(ctx, pod)
	if err != nil {
		return selection{}, err
	}
	if node != "" {
		a, err := c.agentOf(ctx, node)
		return selection{agents: []agent{a}, one: true}, err
	}
	agents, err := c.agents(ctx)
	return selection{agents: agents, note: note}, err
}

// place returns the node on which a pod runs. Without a node all are to be asked;
// the note says why, if that may surprise.
func (c *cluster) place(ctx context.Context, pod string) (node, note string, err error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", nil // an address, a container id, or no pod at all
	}
	var p corev1.Pod
	err = c.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&p)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Sprintf("pod %s is not in the API: all nodes are asked for it", pod), nil
	case apierrors.IsForbidden(err):
		return "", fmt.Sprintf("the node of pod %s is not known, so all nodes are asked for it: %s", pod, err), nil
	case err != nil:
		return "", "", fmt.Errorf("get pod %s: %w", pod, err)
	case p.Spec.NodeName == "":
		return "", "", fmt.Errorf("pod %s is on no node yet: %s; see: kubectl -n %s describe pod %s", pod, unscheduled(&p), namespace, name)
	case p.Spec.HostNetwork:
		return "", "", fmt.Errorf("pod %s uses the network of its node %s (hostNetwork): weft does nothing for it", pod, p.Spec.NodeName)
	}
	return p.Spec.NodeName, "", nil
}

// agentOf returns the agent of one node, which must have one.
func (c *cluster) agentOf(ctx context.Context, name string) (agent, error) {
	a := agent{node: name}
	var node corev1.Node
	err := c.core.Get().Resource("nodes").Name(name).Do(ctx).Into(&node)
	if apierrors.IsNotFound(err) {
		return a, fmt.Errorf("the cluster has no node %s; see: kubectl get nodes", name)
	}
	if err == nil { // or go on without: only what is said of it needs it
		a.silence = silence(&node)
	}
	pods, where, err := c.pods(ctx, "spec.nodeName="+name)
	if err != nil {
		return a, err
	}
	if len(pods) == 0 { // those that no node has room for are on none
		if pods, where, err = c.pods(ctx, "spec.nodeName="); err != nil {
			return a, err
		}
	}
	if a.pod = best(pods)[name]; a.pod == nil {
		return a, fmt.Errorf("node %s: %s; see: kubectl get daemonset -A -l app.kubernetes.io/name=weft; "+
			"it was looked for in %s", name, noAgent, where)
	}
	return a, nil
}

// agents returns the agents of all nodes, by node, and the nodes without one.
func (c *cluster) agents(ctx context.Context) ([]agent, error) {
	pods, where, err := c.pods(ctx, "")
	if err != nil {
		return nil, err
	}
	chosen := best(pods)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no node has an agent: there is no pod with labels %s in %s; see: kubectl get daemonset -A -l app.kubernetes.io/name=weft",
			Selector, where)
	}
	agents := map[string]agent{}
	for node, pod := range chosen {
		agents[node] = agent{node: node, pod: pod}
	}
	nodes, _ := c.nodes(ctx) // who may not list nodes does without
	for _, n := range nodes {
		agents[n.Name] = agent{node: n.Name, pod: chosen[n.Name], silence: silence(&n)}
	}
	var sorted []agent
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		sorted = append(sorted, agents[name])
	}
	return sorted, nil
}

// nodes lists the cluster's nodes.
func (c *cluster) nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := c.core.Get().Resource("nodes").Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return list.Items, nil
}

// pods returns the agents' pods, and in words where they were looked for.
// Unless the user says which, that is the manifests' default, or else the only one
// that has such pods.
func (c *cluster) pods(ctx context.Context, fields string) ([]corev1.Pod, string, error) {
	if c.target.Namespace != "" {
		pods, err := c.podsIn(ctx, c.target.Namespace, fields)
		return pods, "namespace " + c.target.Namespace, err
	}
	pods, err := c.podsIn(ctx, DefaultNamespace, fields)
	if err != nil || len(pods) > 0 {
		return pods, "namespace " + DefaultNamespace, err
	}
	pods, err = c.podsIn(ctx, metav1.NamespaceAll, fields)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Sprintf("namespace %s (others only by -n: you may not list the pods of all)", DefaultNamespace), nil
	}
	namespaces := map[string]bool{}
	for _, p := range pods {
		namespaces[p.Namespace] = true
	}
	if len(namespaces) > 1 {
		return nil, "", fmt.Errorf("pods with the agents' labels are in several namespaces: say which by -n: %s",
			strings.Join(slices.Sorted(maps.Keys(namespaces)), ", "))
	}
	return pods, "any namespace", err
}

func (c *cluster) podsIn(ctx context.Context, namespace, fields string) ([]corev1.Pod, error) {
	var list corev1.PodList
	options := metav1.ListOptions{LabelSelector: Selector, FieldSelector: fields}
	err := c.core.Get().Namespace(namespace).Resource("pods").VersionedParams(&options, c.params).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("list the agents' pods: %w", err)
	}
	return list.Items, nil
}

// best returns for each node the pod that can say most.
func best(pods []corev1.Pod) map[string]*corev1.Pod {
	chosen := map[string]*corev1.Pod{}
	for i := range pods {
		p := &pods[i]
		node := nodeOf(p)
		if node == "" {
			continue
		}
		if other := chosen[node]; other == nil || better(p, other) {
			chosen[node] = p
		}
	}
	return chosen
}

// better reports whether a is to be asked rather than b: the one whose agent runs,
// then the one that stays, then the younger one.
func better(a, b *corev1.Pod) bool {
	switch {
	case runs(a) != runs(b):
		return runs(a)
	case leaves(a) != leaves(b):
		return leaves(b)
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// leaves reports whether a pod will be none of the node's soon.
func leaves(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// nodeOf returns the node that a pod is for: a DaemonSet's pod that is not
// scheduled yet names it in its affinity.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
