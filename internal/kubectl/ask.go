// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// errNoPod is the answer of a node that has no agent. It is no failure.
var errNoPod = errors.New(noAgent)

// errInterrupted is the answer of a node that the user does not wait for.
var errInterrupted = errors.New("interrupted")

// refusal is the answer of a command that ran and failed. Its words are on the
// command's standard error.
type refusal struct{ code int }

func (r *refusal) Error() string { return fmt.Sprintf("command terminated with exit code %d", r.code) }

// ask runs a command on a node, if its agent can be asked.
func (c *cluster) ask(ctx context.Context, a agent, argv []string, stdout, stderr io.Writer) error {
	if a.pod == nil {
		return errNoPod
	}
	if what := trouble(a.pod); what != "" {
		return errors.New(what)
	}
	return c.exec(ctx, a.pod, argv, stdout, stderr)
}

// exec returns a refusal if the command failed, and another error if it could not
// be run, or its end was not seen.
func (c *cluster) exec(ctx context.Context, pod *corev1.Pod, argv []string, stdout, stderr io.Writer) error {
	url := c.core.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: argv, Stdout: true, Stderr: true}, c.params).URL()
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", url.String())
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // errors are returned
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	var exit exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &refusal{exit.ExitStatus()}
	}
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(err, &upgrade) { // what the API server says is in it
		err = upgrade.Cause
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("run a command in pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return err
}
