// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// atOnce is how many nodes are asked at the same time.
const atOnce = 8

// ask asks one node. It may go on writing after it has returned because of its
// context.
type ask func(ctx context.Context, pod *corev1.Pod, stdout, stderr io.Writer) error

// answer is what a node has said, and why it said no more.
type answer struct {
	stdout, stderr output
	err            error
	done           chan struct{}
}

// collect asks the nodes of pods and prints each answer as soon as it and those
// before it are there.
func collect(ctx context.Context, pods []corev1.Pod, timeout time.Duration, stdout, stderr io.Writer, ask ask) error {
	answers := make([]*answer, len(pods))
	for i := range answers {
		answers[i] = &answer{done: make(chan struct{})}
	}
	go func() {
		turns := make(chan struct{}, atOnce)
		for i, a := range answers { // in their order: that is how they are printed
			turns <- struct{}{}
			go func() {
				a.err = within(ctx, timeout, func(ctx context.Context) error { return ask(ctx, &pods[i], &a.stdout, &a.stderr) })
				close(a.done)
				<-turns
			}()
		}
	}()
	var errs []error
	for i, a := range answers {
		<-a.done
		node := pods[i].Spec.NodeName
		if len(pods) > 1 {
			fmt.Fprintf(stderr, "==> %s\n", node)
		}
		_, _ = stdout.Write(a.stdout.take())
		_, _ = stderr.Write(a.stderr.take())
		if a.err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node, a.err))
		}
	}
	return errors.Join(errs...)
}

// within runs do for as long as it may take.
func within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	if timeout <= 0 {
		return do(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no complete answer within %s (--timeout): see whether the node is Ready: kubectl get nodes", timeout)
	}
	return err
}

// output keeps what is written until it is taken, and nothing afterwards.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	taken bool
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken {
		return 0, io.ErrClosedPipe
	}
	return o.text.Write(text)
}

func (o *output) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = true
	return o.text.Bytes()
}
