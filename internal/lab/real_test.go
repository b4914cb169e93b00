// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tests in this file run the real programs in both modes: what is proved
// is the whole of lab, libcni, plugin, agent and kernel.

// realHost returns a host with the built programs, from WEFT_BIN or bin/.
func realHost(t *testing.T) Host {
	t.Helper()
	bin := os.Getenv("WEFT_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	h := Host{Root: DefaultRoot, BinDir: bin}
	for _, mode := range []Mode{Thick, Thin} {
		if err := h.findPrograms(Spec{Mode: mode}); err != nil {
			t.Fatal(err) // says "run `make build`"
		}
	}
	return h
}

// inModes runs a test for both modes in a lab that is up, and verifies that the
// machine is unchanged after it.
func inModes(t *testing.T, f func(t *testing.T, h Host, s Spec)) {
	h := realHost(t)
	for _, mode := range []Mode{Thick, Thin} {
		t.Run(string(mode), func(t *testing.T) {
			unchanged := observe(t, h.BinDir)
			s := Spec{Name: "real", Mode: mode}
			if err := h.Up(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			f(t, h, s)
			if err := h.Down(t.Context(), s.Name); err != nil {
				t.Errorf("down: %v", err)
			}
			unchanged("after down")
		})
	}
}

func addPods(t *testing.T, h Host, names ...string) []Pod {
	t.Helper()
	var pods []Pod
	for _, name := range names {
		p, err := h.AddPod(t.Context(), "real", PodSpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	return pods
}

// weft runs a command of the real program inside the lab and returns its
// output.
func weft(t *testing.T, h Host, machine string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(h.BinDir, "weft"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Start("real", machine, cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	return strings.TrimSpace(out.String()), err
}

// TestEveryPairTalks: ping, TCP and UDP of both families between all pods, with
// the source address unchanged; the outside sees the node.
func TestEveryPairTalks(t *testing.T) {
	inModes(t, func(t *testing.T, h Host, s Spec) {
		pods := addPods(t, h, "a", "b", "c")
		everyPairTalks(t, h, 2*(3*2+3))
		for _, p := range pods {
			for _, a := range p.Addresses {
				if out, err := weft(t, h, "node1", "lab", "probe", "ping", a.Addr().String()); err != nil {
					t.Errorf("node1 to %s: %s", p.Name, out)
				}
			}
		}
		status, err := h.Status(t.Context(), "real")
		if err != nil || !status.Healthy() || len(status.Pods) != 3 {
			t.Errorf("status: %+v, %v", status, err)
		}
	})
}

// everyPairTalks checks all pairs and their number.
func everyPairTalks(t *testing.T, h Host, number int) {
	t.Helper()
	pairs, err := h.Check(t.Context(), "real")
	if err != nil {
		t.Fatal(err)
	}
	if err := Judge(pairs); err != nil || len(pairs) != number {
		t.Errorf("%d pairs, %v; want %d:", len(pairs), err, number)
		for _, p := range pairs {
			if !p.OK() {
				t.Errorf("  %v", p.Cells())
			}
		}
	}
}

// TestCheckSeesFaults: a pod that is cut off, and a source that is changed on
// the way.
func TestCheckSeesFaults(t *testing.T) {
	h := realHost(t)
	if err := h.Up(t.Context(), Spec{Name: "real", Mode: Thin}); err != nil {
		t.Fatal(err)
	}
	defer h.Down(t.Context(), "real")
	addPods(t, h, "a", "b")
	var said bytes.Buffer
	nft := exec.Command("nft", "-f", "-")
	nft.Stderr = &said
	nft.Stdin = strings.NewReader(`
		table ip foreign {
			chain c {
				type nat hook postrouting priority 90
				ip daddr 10.42.0.0/24 masquerade
			}
		}
		table ip6 foreign {
			chain c {
				type filter hook forward priority 0
				ip6 daddr fd00:42::/64 ip6 saddr fd00:42::/64 drop
			}
		}`)
	if err := h.Start("real", "node1", nft); err != nil {
		t.Fatal(err)
	}
	if err := nft.Wait(); err != nil {
		t.Fatalf("nft: %v: %s", err, said.String())
	}
	pairs, err := h.Check(t.Context(), "real")
	if err != nil || len(pairs) != 8 {
		t.Fatalf("%d pairs, %v", len(pairs), err)
	}
	for _, p := range pairs {
		for _, reply := range []Reply{p.ICMP, p.TCP, p.UDP} {
			switch {
			case p.To == OutsideName:
				if reply.Error != "" {
					t.Errorf("to the outside: %v", p.Cells())
				}
			case p.Family == "IPv4":
				want(t, reply.Error, "seen as 198.18.1.11")
			case reply.Error == "":
				t.Errorf("across a rule that drops: %v", p.Cells())
			}
		}
	}
	wantError(t, Judge(pairs), "4 of 8")
}

// TestExecCommand: what runs in a pod is the command itself, with its exit
// status, its arguments and the pod's links.
func TestExecCommand(t *testing.T) {
	h := realHost(t)
	if err := h.Up(t.Context(), Spec{Name: "real", Mode: Thin}); err != nil {
		t.Fatal(err)
	}
	defer h.Down(t.Context(), "real")
	addPods(t, h, "a")
	for _, tc := range []struct {
		args   []string
		output string
		status int
	}{
		{[]string{"a", "--", "sh", "-c", "exit 7"}, "", 7},
		{[]string{"a", "sh", "-c", "exit 7"}, "", 7},
		{[]string{"a", "--", "echo", "-n", "--", "x"}, "-- x", 0},
		{[]string{"a", "--", "sh", "-c", "grep -c eth0: /proc/net/dev"}, "1", 0},
		{[]string{"node1", "--", "sh", "-c", "grep -c uplink0: /proc/net/dev"}, "1", 0},
		{[]string{"a", "--"}, "weft: run in the lab: no command given", 1},
		{[]string{"z", "--", "true"}, `weft: "z" is nothing in lab "real": want one of [a node1 outside]`, 1},
	} {
		cmd := exec.Command(filepath.Join(h.BinDir, "weft"), append([]string{"lab", "exec", "--name", "real"}, tc.args...)...)
		out, _ := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != tc.output || cmd.ProcessState.ExitCode() != tc.status {
			t.Errorf("exec %q: %q, status %d; want %q, %d", tc.args, got, cmd.ProcessState.ExitCode(), tc.output, tc.status)
		}
	}
}

// TestRequestedAddresses: asked for, granted; asked for again, refused by the
// plugin, and the second pod is gone.
func TestRequestedAddresses(t *testing.T) {
	inModes(t, func(t *testing.T, h Host, s Spec) {
		var ips []netip.Addr
		for _, a := range addPods(t, h, "first")[0].Addresses { // which block the node has is not known
			bytes := a.Addr().AsSlice()
			bytes[len(bytes)-1] = 77
			ip, _ := netip.AddrFromSlice(bytes)
			ips = append(ips, ip)
		}
		p, err := h.AddPod(t.Context(), "real", PodSpec{Name: "a", IPs: ips})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Addresses) != 2 || p.Addresses[0].Addr() != ips[0] || p.Addresses[1].Addr() != ips[1] {
			t.Errorf("addresses %v, want %v", p.Addresses, ips)
		}
		_, err = h.AddPod(t.Context(), "real", PodSpec{Name: "b", IPs: ips})
		wantError(t, err, ips[0].String())
		if pods, err := h.Pods("real"); err != nil || len(pods) != 2 {
			t.Errorf("pods %v, %v; want the first two", pods, err)
		}
	})
}

// TestSingleFamilies: a lab whose pods have one family only, on nodes of that
// family and on nodes of both.
func TestSingleFamilies(t *testing.T) {
	h := realHost(t)
	for _, pods := range []Family{IPv4, IPv6} {
		for _, nodes := range []Family{pods, Dual} {
			for _, mode := range []Mode{Thick, Thin} {
				t.Run(fmt.Sprintf("%s pods on %s nodes, %s", pods, nodes, mode), func(t *testing.T) {
					unchanged := observe(t, h.BinDir)
					s := Spec{Name: "real", Mode: mode, Family: nodes, Subnets: defaultSubnets(mode, pods)}
					if err := h.Up(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					added := addPods(t, h, "a", "b")
					if got := added[1].Addresses; len(got) != 1 || !s.Subnets[0].Contains(got[0].Addr()) {
						t.Errorf("addresses %v", got)
					}
					everyPairTalks(t, h, 2+2)
					if err := h.Down(t.Context(), "real"); err != nil {
						t.Errorf("down: %v", err)
					}
					unchanged("after down")
				})
			}
		}
	}
}

// TestAgentKilled: with the agent gone STATUS says so, DEL still works, and so
// does Down.
func TestAgentKilled(t *testing.T) {
	h := realHost(t)
	unchanged := observe(t, h.BinDir)
	if err := h.Up(t.Context(), Spec{Name: "real"}); err != nil {
		t.Fatal(err)
	}
	addPods(t, h, "a", "b")
	if err := h.KillNode("real", "node1"); err != nil {
		t.Fatal(err)
	}
	s, err := h.Status(t.Context(), "real")
	if err != nil || s.Healthy() || s.Nodes[0].Agent != "not running" {
		t.Errorf("status without the agent: %+v, %v", s, err)
	}
	_, err = h.AddPod(t.Context(), "real", PodSpec{Name: "c"})
	wantError(t, err, "ADD")
	if err := h.DeletePod(t.Context(), "real", "a"); err != nil {
		t.Errorf("DEL without the agent: %v", err)
	}
	if err := h.Down(t.Context(), "real"); err != nil {
		t.Errorf("down without the agent: %v", err)
	}
	unchanged("after down")
}

// fakeAgent returns the host with a shell script in place of weft.
func fakeAgent(t *testing.T, script string) Host {
	t.Helper()
	h := realHost(t)
	bin := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(bin, "weft"), []byte("#!/bin/sh\n"+script+"\n"), 0o755),
		os.Symlink(filepath.Join(h.BinDir, "weft-cni"), filepath.Join(bin, "weft-cni")),
	); err != nil {
		t.Fatal(err)
	}
	h.BinDir = bin
	return h
}

// TestAgentCannotStart: the reason is in the error, since the log is removed
// with the lab.
func TestAgentCannotStart(t *testing.T) {
	h := fakeAgent(t, "echo the reason of the agent >&2; exit 3")
	unchanged := observe(t, h.BinDir)
	wantError(t, h.Up(t.Context(), Spec{Name: "real"}), "node1", "the reason of the agent")
	unchanged("after an up that failed")
}

// TestUpInterrupted: while it waits for an agent that never gets ready.
func TestUpInterrupted(t *testing.T) {
	h := fakeAgent(t, "exec sleep 1000")
	unchanged := observe(t, h.BinDir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.Progress = func(step string) {
		if strings.Contains(step, "agent started") {
			cancel()
		}
	}
	if err := h.Up(ctx, Spec{Name: "real"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	unchanged("after an interrupted up")
}

// TestRealUpAndDownKilledAtEachStep is the crash test with an agent to lose.
func TestRealUpAndDownKilledAtEachStep(t *testing.T) {
	for _, mode := range []Mode{Thick, Thin} {
		t.Run(string(mode), func(t *testing.T) {
			killedAtEachStep(t, realHost(t), Spec{Name: "real", Mode: mode})
		})
	}
}

// TestDirectoryVanishedUnderPods: someone removed what can be removed of the
// lab's files while pods exist. The mounts remain and are found by Down.
func TestDirectoryVanishedUnderPods(t *testing.T) {
	h := realHost(t)
	unchanged := observe(t, h.BinDir)
	if err := h.Up(t.Context(), Spec{Name: "real"}); err != nil {
		t.Fatal(err)
	}
	addPods(t, h, "a", "b")
	l := h.layout("real")
	for _, path := range []string{l.podsDir(), l.node("node1"), l.spec(), l.ready()} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Down(t.Context(), "real"); err != nil {
		t.Errorf("down: %v", err)
	}
	unchanged("after down")
}
