// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// container is the agent's, in its pod.
const container = "agent"

// noAgent is what is said of a node for which there is no pod.
const noAgent = "it has no agent's pod: its labels or taints may exclude it from the DaemonSet, on purpose or not"

// runs reports whether the agent can be asked. It need not be ready: why it is
// not is a question to ask it.
func runs(p *corev1.Pod) bool {
	s := status(p.Status.ContainerStatuses, container)
	return s != nil && s.State.Running != nil && p.Status.Phase == corev1.PodRunning
}

// trouble says why the agent of a pod does not run, and where to read more; "" if
// it runs.
func trouble(p *corev1.Pod) string {
	if runs(p) {
		return ""
	}
	what, see := cause(p)
	if p.DeletionTimestamp != nil {
		what = "its pod is being deleted; " + what
	}
	return fmt.Sprintf("the agent is not running: %s; see: kubectl -n %s %s", what, p.Namespace, see)
}

// cause returns what keeps the agent from running, and the command of kubectl that
// tells more.
func cause(p *corev1.Pod) (what, see string) {
	describe := "describe pod " + p.Name
	switch {
	case p.Status.Phase == corev1.PodFailed && p.Status.Reason != "": // evicted, refused by the kubelet
		return words(p.Status.Reason, p.Status.Message), describe
	case p.Spec.NodeName == "":
		return "its pod is on no node yet: " + unscheduled(p), describe
	}
	own := status(p.Status.ContainerStatuses, container)
	if own == nil || own.State.Waiting != nil && own.State.Waiting.Reason == "PodInitializing" {
		for i := range p.Status.InitContainerStatuses {
			if s := &p.Status.InitContainerStatuses[i]; !passed(p, s) {
				what, see := of(p, s)
				return fmt.Sprintf("init container %s: %s", s.Name, what), see
			}
		}
	}
	if own == nil {
		return fmt.Sprintf("pod %s is %s, and its kubelet has told nothing of it yet", p.Name, p.Status.Phase), describe
	}
	return of(p, own)
}

// passed reports whether an init container does not hold up those after it.
func passed(p *corev1.Pod, s *corev1.ContainerStatus) bool {
	if t := s.State.Terminated; t != nil {
		return t.ExitCode == 0
	}
	if w := s.State.Waiting; w != nil {
		return w.Reason == "PodInitializing" // it waits for one of the others
	}
	for _, c := range p.Spec.InitContainers { // a sidecar stays
		if c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return true
		}
	}
	return false
}

// of says what state a container is in that does not do its work.
func of(p *corev1.Pod, s *corev1.ContainerStatus) (what, see string) {
	logs := fmt.Sprintf("logs %s -c %s", p.Name, s.Name)
	waiting, last := s.State.Waiting, s.LastTerminationState.Terminated
	switch {
	case s.State.Running != nil:
		return "running since " + moment(s.State.Running.StartedAt.Time), logs
	case s.State.Terminated != nil:
		return ended(s.State.Terminated, s.RestartCount), logs
	case waiting != nil && last != nil && waiting.Reason == "CrashLoopBackOff":
		return waiting.Reason + ", " + ended(last, s.RestartCount), logs + " --previous"
	case waiting != nil:
		return words(waiting.Reason, waiting.Message), "describe pod " + p.Name
	}
	return "not started", "describe pod " + p.Name
}

// ended says how a container has ended, with the last line of what it left.
func ended(t *corev1.ContainerStateTerminated, restarts int32) string {
	what := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Signal != 0 {
		what = fmt.Sprintf("signal %d", t.Signal)
	}
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" { // these say nothing
		what = t.Reason + ", " + what
	}
	what += " at " + moment(t.FinishedAt.Time)
	switch {
	case restarts == 1:
		what += ", 1 restart"
	case restarts > 1:
		what += fmt.Sprintf(", %d restarts", restarts)
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if json.Valid([]byte(last)) { // what it logged before it was killed; why it ends itself it says in words
		last = ""
	}
	return words(what, last)
}

// unscheduled says why a pod has no node.
func unscheduled(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return words(c.Reason, c.Message)
		}
	}
	return "the scheduler has said nothing of it yet"
}

// silence says since when nothing is heard of a node; "" if it speaks. One that
// speaks and is not ready says why itself, when it is asked.
func silence(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return fmt.Sprintf("the node is not ready since %s: %s", moment(c.LastTransitionTime.Time), words(c.Reason, c.Message))
		}
	}
	return ""
}

// moment is a time as logs and kubectl have it.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// words joins in one line a reason and a message, either of which may be missing.
func words(reason, message string) string {
	message = strings.ReplaceAll(strings.TrimRight(message, ". \n"), "\n", "; ")
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

func status(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
