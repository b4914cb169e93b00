// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests in this file use a fake plugin: they are about what the lab does
// as a runtime, and about plugins that fail in ways ours should not.

var callFields = regexp.MustCompile(`^container=([0-9a-f]{64}) netns=(\S*) ifname=(\S*) args=(\S*) path=(\S*) in=(\S*) stdin=(.*)$`)

// TestPluginCalls looks at the calls from the plugin's side.
func TestPluginCalls(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	if calls := f.calls(t, "STATUS"); len(calls) != 1 {
		t.Errorf("STATUS was called %d times by up, want once", len(calls))
	}
	l := f.host.layout("fake")
	node, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if err := inNetns(l.netns("node1"), func() error { node, err = os.Readlink(threadNetns); return err }); err != nil {
		t.Fatal(err)
	}
	pod, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a", IPs: []netip.Addr{netip.MustParseAddr("10.42.0.2")}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pod.Addresses, prefixes("10.42.0.2/32")) || pod.AddMillis <= 0 {
		t.Errorf("pod %+v", pod)
	}
	status, err := f.host.Status(t.Context(), "fake")
	if err != nil || !status.Healthy() {
		t.Errorf("status %+v, %v", status, err)
	}
	if err := f.host.DeletePod(t.Context(), "fake", "a"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		calls := f.calls(t, verb)
		if len(calls) != 1 {
			t.Fatalf("%s was called %d times: %v", verb, len(calls), calls)
		}
		got := callFields.FindStringSubmatch(calls[0])
		if got == nil {
			t.Fatalf("%s: %s", verb, calls[0])
		}
		args := "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=" + pod.ContainerID
		path := f.host.BinDir + string(os.PathListSeparator) + f.dir
		wanted := []string{pod.ContainerID, l.netns("a"), "eth0", args, path, node}
		if !slices.Equal(got[1:7], wanted) {
			t.Errorf("%s was called with\n%v, want\n%v", verb, got[1:7], wanted)
		}
		want(t, got[7], `"runtimeConfig":{"ips":["10.42.0.2"]}`)
	}
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Fatal(err)
	}
	unchanged("after down")
}

func TestRefusals(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	ctx := t.Context()

	notFound, exists, noPod := (*NotFoundError)(nil), (*ExistsError)(nil), (*NoPodError)(nil)
	if _, err := f.host.Status(ctx, "fake"); !errors.As(err, &notFound) {
		t.Errorf("status of no lab: %v", err)
	}
	if err := f.host.Down(ctx, "../run"); err == nil {
		t.Error("down of a path: no error")
	}
	wantError(t, f.host.Up(ctx, Spec{Name: "fake"}), "weft and weft-cni", f.host.BinDir, "make build")
	wantError(t, f.host.Up(ctx, Spec{Name: "fake", Mode: Thin}), "weft-cni and weft-ipam", f.host.BinDir)
	unchanged("after refused calls")

	f.up(t)
	if err := f.host.Up(ctx, f.spec); !errors.As(err, &exists) || !exists.Complete {
		t.Errorf("up on a lab: %v", err)
	}
	if err := f.host.DeletePod(ctx, "fake", "a"); !errors.As(err, &noPod) {
		t.Errorf("delete of no pod: %v", err)
	}
	_, err := f.host.AddPod(ctx, "fake", PodSpec{Name: "node1"})
	wantError(t, err, `"node1"`)
	_, err = f.host.AddPod(ctx, "fake", PodSpec{Name: "a", Node: "node7"})
	wantError(t, err, `"node7"`)
	if _, err := f.host.AddPod(ctx, "fake", PodSpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	podExists := (*PodExistsError)(nil)
	if _, err := f.host.AddPod(ctx, "fake", PodSpec{Name: "a"}); !errors.As(err, &podExists) || !podExists.Complete {
		t.Errorf("add of the same pod: %v", err)
	}
	wantError(t, f.host.Start("fake", "b", exec.Command("true")), `"b"`, "[a node1 outside]")
	wantError(t, f.host.Replace("fake", "a", nil), "no command")
	wantError(t, f.host.Replace("fake", "a", []string{"no-such-program"}), "no-such-program")
	if err := f.host.Down(ctx, "fake"); err != nil {
		t.Fatal(err)
	}
	unchanged("after down")
}

// TestAddFails: the runtime follows a failed ADD by DEL, and nothing of the pod
// is left.
func TestAddFails(t *testing.T) {
	f := newFake(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	unchanged := observe(t, f.host.BinDir)
	f.fails(t, "ADD", true)
	_, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"})
	wantError(t, err, "pod a", "ADD", "told to fail")
	if calls := f.calls(t, "DEL"); len(calls) != 1 {
		t.Errorf("DEL after the failed ADD: %v", calls)
	}
	unchanged("after a failed ADD")
	f.fails(t, "ADD", false)
	if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"}); err != nil {
		t.Errorf("add after the failed one: %v", err)
	}
}

// TestIPsNeedTheCapability: libcni would drop the request silently.
func TestIPsNeedTheCapability(t *testing.T) {
	f := newFake(t)
	f.spec.Conflist = strings.Replace(f.spec.Conflist, `"ips":true`, `"ips":false`, 1)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	_, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a", IPs: []netip.Addr{netip.MustParseAddr("10.42.0.9")}})
	wantError(t, err, "10.42.0.9", `"ips"`)
}

// TestDelFails: the pod stays so that DEL can be repeated; Down reports the
// failure and removes everything nevertheless.
func TestDelFails(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	for _, name := range []string{"a", "b"} {
		if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	f.fails(t, "DEL", true)
	wantError(t, f.host.DeletePod(t.Context(), "fake", "a"), "pod a", "DEL", "told to fail")
	if pods, err := f.host.Pods("fake"); err != nil || len(pods) != 2 {
		t.Errorf("pods after the failed DEL: %v, %v", pods, err)
	}
	f.fails(t, "DEL", false)
	if err := f.host.DeletePod(t.Context(), "fake", "a"); err != nil {
		t.Errorf("DEL repeated: %v", err)
	}
	f.fails(t, "DEL", true)
	wantError(t, f.host.Down(t.Context(), "fake"), "pod b", "told to fail")
	unchanged("after a down whose DEL failed")
}

// TestCheckAndStatusFail: what the plugin says is shown, and not healthy.
func TestCheckAndStatusFail(t *testing.T) {
	f := newFake(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	f.fails(t, "CHECK", true)
	f.fails(t, "STATUS", true)
	s, err := f.host.Status(t.Context(), "fake")
	if err != nil || s.Healthy() {
		t.Fatalf("status %+v, %v", s, err)
	}
	want(t, s.Pods[0].Check, "CHECK", "told to fail")
	want(t, s.Nodes[0].Network, "STATUS", "told to fail")
}

// TestTooFewWatches: the reason is told before anything is made. The limit is
// the machine's and not for a test to lower; it asks for more than there can be.
func TestTooFewWatches(t *testing.T) {
	err := enoughWatches(Spec{Mode: Thick, Nodes: 1 << 40})
	wantError(t, err, "inotify instances", "sysctl -w fs.inotify.max_user_instances")
	for _, s := range []Spec{{Mode: Thick, Nodes: 1}, {Mode: Thin, Nodes: 1 << 40}} {
		if err := enoughWatches(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestUpFails: an up that does not get to its end removes what it made.
func TestUpFails(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.fails(t, "STATUS", true)
	wantError(t, f.host.Up(t.Context(), f.spec), "node1", "STATUS", "told to fail")
	unchanged("after an up that failed")
}

// TestProcessesEndWithTheirPod: also those that left their session.
func TestProcessesEndWithTheirPod(t *testing.T) {
	f := newFake(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	var running []process
	for _, name := range []string{"a", "b"} {
		if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := f.host.Start("fake", name, cmd); err != nil {
			t.Fatal(err)
		}
		p, ok := readProcess(cmd.Process.Pid)
		if !ok {
			t.Fatal("not running")
		}
		running = append(running, p)
	}
	if err := f.host.DeletePod(t.Context(), "fake", "a"); err != nil {
		t.Fatal(err)
	}
	if running[0].alive() || !running[1].alive() {
		t.Errorf("alive after the delete of pod a: in a %v, in b %v", running[0].alive(), running[1].alive())
	}
	if err := f.host.Down(t.Context(), "fake"); err != nil || running[1].alive() {
		t.Errorf("down: %v; alive in b: %v", err, running[1].alive())
	}
}

// TestConcurrentCommands: commands take turns, and a Down in between leaves no
// trace of those that waited for it.
func TestConcurrentCommands(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	var wg sync.WaitGroup
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		wg.Go(func() {
			if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: name}); err != nil {
				t.Errorf("add %s: %v", name, err)
			}
		})
		wg.Go(func() {
			if _, err := f.host.Pods("fake"); err != nil {
				t.Errorf("list: %v", err)
			}
		})
	}
	wg.Wait()
	pods, err := f.host.Pods("fake")
	if err != nil || len(pods) != len(names) {
		t.Errorf("%d pods, %v; want %d", len(pods), err, len(names))
	}
	for _, name := range []string{"g", "h", "i"} {
		wg.Go(func() {
			_, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: name})
			if notFound := (*NotFoundError)(nil); err != nil && !errors.As(err, &notFound) {
				t.Errorf("add during down: %v", err)
			}
		})
		wg.Go(func() {
			if err := f.host.Down(t.Context(), "fake"); err != nil {
				t.Errorf("down: %v", err)
			}
		})
	}
	wg.Wait()
	unchanged("after down")
}

// TestUpAndDownAtOnce: many of both end with a whole lab or none.
func TestUpAndDownAtOnce(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			err := f.host.Up(t.Context(), f.spec)
			exists, notFound := (*ExistsError)(nil), (*NotFoundError)(nil)
			if err != nil && !errors.As(err, &exists) && !errors.As(err, &notFound) {
				t.Errorf("up: %v", err)
			}
		})
		wg.Go(func() {
			if err := f.host.Down(t.Context(), "fake"); err != nil {
				t.Errorf("down: %v", err)
			}
		})
	}
	wg.Wait()
	incomplete, notFound := (*IncompleteError)(nil), (*NotFoundError)(nil)
	s, err := f.host.Status(t.Context(), "fake")
	if errors.As(err, &incomplete) || (err == nil && !s.Healthy()) || (err != nil && !errors.As(err, &notFound)) {
		t.Errorf("a lab that is neither whole nor gone: %+v, %v", s, err)
	}
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Error(err)
	}
	unchanged("after down")
}

// TestTwoLabs: one goes without the other noticing; the root goes with the
// last.
func TestTwoLabs(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	alone := observe(t, f.host.BinDir)
	other := f.spec
	other.Name = "fake2"
	if err := f.host.Up(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := f.host.Down(t.Context(), "fake2"); err != nil {
		t.Fatal(err)
	}
	alone("after the other lab went")
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Fatal(err)
	}
	unchanged("after both went")
	if _, err := os.Stat(filepath.Dir(string(f.host.layout("fake")))); !os.IsNotExist(err) {
		t.Errorf("the root: %v", err)
	}
}
