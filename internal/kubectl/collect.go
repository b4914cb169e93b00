// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// atOnce is how many nodes are asked at the same time.
const atOnce = 8

// ask asks one node. It may go on writing after it has returned because of its
// context.
type ask func(ctx context.Context, a agent, stdout, stderr io.Writer) error

// answer is what a node has said, and why it said no more. It is complete when
// done is closed.
type answer struct {
	agent          agent
	stdout, stderr output
	err            error
	done           chan struct{}
}

// collect asks the nodes of agents, several at a time, and returns their answers
// to be.
func collect(ctx context.Context, agents []agent, timeout time.Duration, ask ask) []*answer {
	answers := make([]*answer, len(agents))
	for i, a := range agents {
		answers[i] = &answer{agent: a, done: make(chan struct{})}
	}
	go func() {
		turns := make(chan struct{}, atOnce)
		for _, a := range answers { // in their order: that is how they are printed
			turns <- struct{}{}
			go func() {
				a.err = within(ctx, timeout, func(ctx context.Context) error { return ask(ctx, a.agent, &a.stdout, &a.stderr) })
				if a.err != nil && !a.refused() && ctx.Err() != nil {
					a.err = errInterrupted
				}
				close(a.done)
				<-turns
			}()
		}
	}()
	return answers
}

// failure returns why a node gave no answer, or what its command complained of; ""
// if neither. A node without an agent has not failed.
func (a *answer) failure() string {
	var failed *refusal
	var late *lateError
	switch {
	case a.err == nil, errors.Is(a.err, errNoPod):
		return ""
	case errors.As(a.err, &failed):
		text := strings.TrimPrefix(strings.TrimSpace(string(a.stderr.take())), "weft: ")
		if text == "" {
			return failed.Error()
		}
		return text
	case a.agent.silence != "" && !errors.Is(a.err, errInterrupted):
		return fmt.Sprintf("%s; %s", a.err, a.agent.silence)
	case errors.As(a.err, &late):
		return late.Error() + ": see whether the node is Ready: kubectl get nodes"
	}
	return a.err.Error()
}

// refused reports whether the command ran, and failed.
func (a *answer) refused() bool {
	var failed *refusal
	return errors.As(a.err, &failed)
}

// printRemarks prints what a command wrote to standard error without failing.
func (a *answer) printRemarks(stderr io.Writer) {
	if a.err != nil {
		return
	}
	for line := range bytes.Lines(a.stderr.take()) {
		fmt.Fprintf(stderr, "node %s: %s\n", a.agent.node, bytes.TrimRight(line, "\n"))
	}
}

// lateError says that something took too long.
type lateError struct{ timeout time.Duration }

func (l *lateError) Error() string {
	return fmt.Sprintf("no complete answer within %s (--timeout)", l.timeout)
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
		return &lateError{timeout}
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
