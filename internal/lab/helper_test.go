// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// job is what a second process of the test program does, so that it can be
// killed while it does it.
type job struct {
	Verb   string // up, down, add, node add, node remove, node start
	BinDir string
	Spec   Spec
	Pod    PodSpec
	Node   string
	// StopAt makes the process hang at the n-th step that it reports, from 1;
	// 0 means never.
	StopAt int
}

const hangs = "HANGS"

func helperMain() int {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(helperEnv)), &j); err != nil {
		fmt.Println(err)
		return 2
	}
	steps := 0
	h := Host{Root: DefaultRoot, BinDir: j.BinDir, Progress: func(step string) {
		if steps++; steps == j.StopAt {
			fmt.Println(hangs, step)
			os.Stdout.Sync()
			<-make(chan struct{})
		}
	}}
	err := fmt.Errorf("unknown verb %q", j.Verb)
	switch j.Verb {
	case "up":
		err = h.Up(context.Background(), j.Spec)
	case "down":
		err = h.Down(context.Background(), j.Spec.Name)
	case "add":
		_, err = h.AddPod(context.Background(), j.Spec.Name, j.Pod)
	case "node add":
		_, err = h.AddNode(context.Background(), j.Spec.Name, 0)
	case "node remove":
		err = h.RemoveNode(j.Spec.Name, j.Node)
	case "node start":
		err = h.StartNode(context.Background(), j.Spec.Name, j.Node)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// start starts the job. The goroutine that the runtime keeps for a blocked
// main must not be the only one, or it reports a deadlock; os/signal or a timer
// would do, the pipe of the parent does too.
func (j job) start(t *testing.T) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

// killAtStep runs the job until its n-th step and kills it there. It returns
// the step's text, or "" where the job ended before.
func (j job) killAtStep(t *testing.T, n int) string {
	t.Helper()
	j.StopAt = n
	cmd, out := j.start(t)
	line, _ := out.ReadString('\n')
	step, hung := strings.CutPrefix(strings.TrimSpace(line), hangs+" ")
	if !hung {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v: %s", j.Verb, err, line)
		}
		return ""
	}
	kill(t, cmd)
	return step
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}
