// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Level is the strength of a requirement, RFC 2119.
type Level string

const (
	MUST   Level = "MUST"
	SHOULD Level = "SHOULD"
)

// Case is one requirement and the attempt to see it broken.
type Case struct {
	ID    string // AREA-NN, with a variant after "@"; unique and stable
	Level Level
	Spec  string // where the requirement is written
	Claim string // the requirement, in one sentence
	Needs Feature
	// Serial cases look at what all cases share (the file system) and run
	// while no other case of the subject does.
	Serial bool
	Run    func(c *C)
}

// Feature is something a subject may or may not offer. A case that needs a
// feature which the subject lacks is not applicable to it.
type Feature uint

const (
	// FeatureAgent: a daemon does the work, and can be down or hang.
	FeatureAgent Feature = 1 << iota
	// FeatureInProcess: the plugin does the work itself, no daemon.
	FeatureInProcess
	// FeatureDelegate: IPAM is delegated to any plugin that ipam.type names.
	FeatureDelegate
	// FeatureWeft: what Weft promises beyond the specification.
	FeatureWeft
)

// C is one case running against one subject: a host, its pods and every call
// that was made. The first failed expectation that cannot be survived ends it.
type C struct {
	Subject *Subject
	Case    *Case
	Host    *Netns
	Dir     string // private to this run; removed afterwards

	mu       sync.Mutex
	calls    []*Call
	failures []string
	cleanups []func()
	pods     int
	network  *Network // the one set up last
}

// Errorf records a broken expectation and goes on.
func (c *C) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

// Fatalf records a broken expectation and ends the case.
func (c *C) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Must ends the case on an error of the suite's own doing: a failed setup.
func (c *C) Must(err error, doing string) {
	if err != nil {
		c.Fatalf("set up: %s: %v", doing, err)
	}
}

// Cleanup registers f to run after the case, last one first.
func (c *C) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

// cleanUp runs what was registered, including what is registered meanwhile.
func (c *C) cleanUp() {
	for {
		c.mu.Lock()
		if len(c.cleanups) == 0 {
			c.mu.Unlock()
			return
		}
		last := c.cleanups[len(c.cleanups)-1]
		c.cleanups = c.cleanups[:len(c.cleanups)-1]
		c.mu.Unlock()
		last()
	}
}

// Path returns a path inside the case's private directory.
func (c *C) Path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Pod creates the network namespace of one more pod.
func (c *C) Pod() *Pod {
	c.mu.Lock()
	c.pods++
	number := c.pods
	c.mu.Unlock()
	path := c.Path(fmt.Sprintf("pod%d", number))
	ns, err := newNetns(path)
	c.Must(err, "create the pod's namespace")
	c.Cleanup(ns.Delete)
	return &Pod{Netns: ns, ID: fmt.Sprintf("%s-%d", containerID(c.Case.ID), number)}
}

// Pod is a container: a namespace and an id.
type Pod struct {
	*Netns
	ID string
}

// Eth0 is the attachment of the pod by the interface that runtimes use.
func (p *Pod) Eth0() Attachment { return p.On("eth0") }

// On is the attachment of the pod by another interface.
func (p *Pod) On(ifname string) Attachment {
	return Attachment{ContainerID: p.ID, Netns: p.Path, Ifname: ifname}
}

// containerID derives a legal container id from a case id.
func containerID(id string) string {
	return strings.NewReplacer("@", "-", "/", "-", " ", "").Replace(strings.ToLower(id))
}

// runCase runs one case to its end and returns what failed, empty for none.
func runCase(s *Subject, k *Case) (failures []string) {
	dir, err := os.MkdirTemp("", "case")
	if err != nil {
		return []string{err.Error()}
	}
	c := &C{Subject: s, Case: k, Dir: dir}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.recoverPanic()
		c.Host, err = newHost(c.Path("host"))
		c.Must(err, "create the host's namespace")
		c.Cleanup(c.Host.Delete)
		k.Run(c)
	}()
	<-done
	c.cleanUp()
	if err := os.RemoveAll(dir); err != nil {
		c.Errorf("remove the case's directory: %v", err)
	}
	if len(c.failures) > 0 {
		return append(c.failures, c.transcript())
	}
	return nil
}

// recoverPanic turns a panic of a case into its failure: one subject's
// unexpected answer must not hide what the others do.
func (c *C) recoverPanic() {
	if r := recover(); r != nil {
		stack := make([]byte, 4096)
		c.Errorf("panic: %v\n%s", r, stack[:runtime.Stack(stack, false)])
	}
}

// transcript shows the calls of the case as they were made, and what the
// daemon logged.
func (c *C) transcript() string {
	var b strings.Builder
	for _, call := range c.calls {
		b.WriteString(call.String())
	}
	if c.network != nil && c.network.daemon != nil {
		b.WriteString("\n" + c.network.daemon.String())
	}
	return b.String()
}

// asJSON renders a value for a message.
func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
