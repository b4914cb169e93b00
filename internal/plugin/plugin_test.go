// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/wire"
)

// run is one process: its answer and exit status.
func run(t *testing.T, name string, env map[string]string, stdin string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Main(Process{
		Name: name, Getenv: func(k string) string { return env[k] },
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
	})
	return out.String(), errs.String(), status
}

func errorObject(t *testing.T, stdout string) (object struct {
	CNIVersion string
	Code       uint
	Msg        string
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &object); err != nil {
		t.Fatalf("standard output %q is no error object: %v", stdout, err)
	}
	return object
}

func TestVersionNeedsNothing(t *testing.T) {
	for stdin, want := range map[string]string{"": `"0.1.0"`, `{"cniVersion":"0.4.0"}`: `"cniVersion":"0.4.0"`, "nonsense": "supportedVersions"} {
		out, _, status := run(t, "weft-cni", map[string]string{"CNI_COMMAND": "VERSION"}, stdin)
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("stdin %q: status %d, %s", stdin, status, out)
		}
	}
}

// A pipe that nobody writes to or closes must not hold VERSION up.
func TestVersionDoesNotWaitForInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var out bytes.Buffer
	status := Main(Process{Name: "weft-cni", Getenv: func(k string) string {
		return map[string]string{"CNI_COMMAND": "VERSION"}[k]
	}, Stdin: r, Stdout: &out, Stderr: &out})
	if status != 0 || !strings.Contains(out.String(), "supportedVersions") {
		t.Errorf("status %d, %s", status, &out)
	}
}

func TestErrorsGoToStandardOutput(t *testing.T) {
	cases := []struct {
		name  string
		env   map[string]string
		stdin string
		code  cni.Code
		words string
	}{
		{"no verb", nil, "{}", cni.CodeEnvironment, "CNI_COMMAND"},
		{"unknown verb", map[string]string{"CNI_COMMAND": "FROB"}, "{}", cni.CodeEnvironment, "FROB"},
		{"no container", map[string]string{"CNI_COMMAND": "ADD"}, "{}", cni.CodeEnvironment, "CNI_CONTAINERID"},
		{"not JSON", map[string]string{"CNI_COMMAND": "STATUS"}, "{", cni.CodeDecode, ""},
		{"too long", map[string]string{"CNI_COMMAND": "STATUS"}, strings.Repeat(" ", maxStdin+1), cni.CodeIO, "standard input"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, stderr, status := run(t, "weft-cni", c.env, c.stdin)
			object := errorObject(t, out)
			if status != 1 || cni.Code(object.Code) != c.code || !strings.Contains(object.Msg, c.words) {
				t.Errorf("status %d, %+v", status, object)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "code=") {
				t.Errorf("standard error %q: want one line with the outcome", stderr)
			}
		})
	}
}

func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	env := map[string]string{
		"CNI_COMMAND": "STATUS", "CNI_ARGS": "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web",
	}
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"weft-cni","socket":%q,"logFile":%q}`, filepath.Join(dir, "none.sock"), log)
	for range 2 {
		out, _, status := run(t, "weft-cni", env, config)
		if object := errorObject(t, out); status != 1 || cni.Code(object.Code) != cni.CodeUnavailable {
			t.Fatalf("STATUS without an agent: status %d, %+v", status, object)
		}
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "verb=STATUS") || !strings.Contains(lines[0], "pod=ns/web") || !strings.Contains(lines[0], "code=50") {
		t.Errorf("log %q", lines)
	}
}

func TestCodes(t *testing.T) {
	cases := map[cni.Code]error{
		cni.CodeTryAgain:     fmt.Errorf("x: %w", &ipam.ExhaustedError{}),
		cni.CodeAddressInUse: &ipam.InUseError{},
		cni.CodeConfig:       &engine.PlanError{Err: errors.New("x")},
		cni.CodeExists:       errors.Join(&kernel.ExistsError{}, errors.New("undo")),
		cni.CodeDrift:        fmt.Errorf("x: %w", engine.ErrNotRecorded),
		cni.CodeNetns:        &kernel.NotNetnsError{},
		cni.CodeIO:           &journal.CorruptError{},
		cni.CodeKernel:       errors.New("whatever the kernel says"),
		cni.CodeDelegate:     fmt.Errorf("undo: %w", cni.Errorf(cni.CodeDelegate, "its own code")),
	}
	for want, err := range cases {
		if got := explain(err); got.Code != want || got.Msg != err.Error() {
			t.Errorf("%v: code %d, message %q; want %d", err, got.Code, got.Msg, want)
		}
	}
	for _, err := range []error{&engine.AttachedError{}, &journal.OwnedError{}, context.DeadlineExceeded, &fs.PathError{Err: errors.New("x")}} {
		if got := explain(err).Code; got == cni.CodeKernel {
			t.Errorf("%T has no code of its own", err)
		}
	}
	if explain(nil) != nil {
		t.Error("no error became one")
	}
}

func TestFindPlugin(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{first + "/plain": 0o644, second + "/plain": 0o755, second + "/tool": 0o755} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(first+"/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	path := first + "::" + second
	for name, want := range map[string]string{"tool": second + "/tool", "plain": second + "/plain"} {
		if got, err := findPlugin(name, path); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "none", "../tool", "/bin/sh", ".", ".."} {
		if got, err := findPlugin(name, path); err == nil {
			t.Errorf("%q found as %s", name, got)
		}
	}
}

// script makes an executable that plays an IPAM plugin.
func script(t *testing.T, text string) facts.Delegate {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/other", []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return facts.Delegate{Type: "other", Path: dir, Config: []byte(`{"cniVersion":"1.0.0","name":"n"}`)}
}

func TestDelegateAnswers(t *testing.T) {
	call := cni.Call{Command: cni.Add, ContainerID: "c1", Netns: "/n", Ifname: "eth0", Args: "A=b"}
	d := script(t, `
[ "$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS" = "ADD c1 /n eth0 A=b" ] || exit 3
grep -q '"name":"n"' || exit 4
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"domain":"d"}}'`)
	result, err := delegateAdd(context.Background(), d, call)
	if err != nil {
		t.Fatal(err)
	}
	g := grantOf(result)
	want := attach.Address{Addr: netip.MustParseAddr("10.1.2.3"), Subnet: netip.MustParsePrefix("10.1.2.0/24"), Gateway: netip.MustParseAddr("10.1.2.1")}
	if len(g.Addresses) != 1 || g.Addresses[0] != want || len(g.Routes) != 1 || result.DNS.Domain != "d" {
		t.Errorf("granted %+v, dns %+v", g, result.DNS)
	}
}

func TestDelegateFailures(t *testing.T) {
	cases := []struct {
		name, text string
		code       cni.Code
		words      string
	}{
		{"its own error object", `echo '{"cniVersion":"1.0.0","code":11,"msg":"busy","details":"more"}'; exit 1`, 11, "busy"},
		{"no error object", `echo oops >&2; exit 7`, cni.CodeDelegate, "oops"},
		{"nonsense as result", `echo nonsense`, cni.CodeDelegate, "parse its result"},
		{"no address", `echo '{"cniVersion":"1.0.0"}'`, cni.CodeDelegate, "no address"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := delegateAdd(context.Background(), script(t, c.text), cni.Call{Command: cni.Add})
			var cerr *cni.Error
			if !errors.As(err, &cerr) || cerr.Code != c.code || !strings.Contains(cerr.Error(), c.words) || !strings.Contains(cerr.Error(), `"other"`) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestHostLocalReservations(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/net", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.0.0.7", "fd00::7", "lock", "last_reserved_ip.0"} {
		if err := os.WriteFile(dir+"/net/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held := hostLocalReserved(dir, "net")
	for addr, want := range map[string]bool{"10.0.0.7": true, "fd00::7": true, "10.0.0.8": false} {
		if got := held(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s held: %v", addr, got)
		}
	}
	if hostLocalReserved(dir, "other")(netip.MustParseAddr("10.0.0.7")) {
		t.Error("a network that host-local never served holds something")
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# comment\nnameserver 10.0.0.10\nnameserver fd00::10\nsearch a.b c.d\noptions ndots:5 edns0\ndomain x.y\nsortlist\n;nameserver 1.1.1.1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", readResolvConf(path))
	if want := "{Nameservers:[10.0.0.10 fd00::10] Domain:x.y Search:[a.b c.d] Options:[ndots:5 edns0]}"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if !readResolvConf(path + ".none").IsZero() {
		t.Error("a missing file said something")
	}
}

// Which verbs the shim serves itself while the agent is down.
func TestShimWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"weft-cni","socket":%q}`, filepath.Join(dir, "agent.sock"))
	env := func(verb string) map[string]string {
		return map[string]string{"CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/proc/self/ns/net"}
	}
	for verb, want := range map[string]cni.Code{cni.Status: cni.CodeUnavailable, cni.Add: cni.CodeNetns} {
		out, _, _ := run(t, "weft-cni", env(verb), config)
		if object := errorObject(t, out); cni.Code(object.Code) != want {
			t.Errorf("%s: %+v, want code %d", verb, object, want)
		}
	}
	for _, verb := range []string{cni.Del, cni.GC} {
		if out, _, status := run(t, "weft-cni", env(verb), config); status != 0 || out != "" {
			t.Errorf("%s: status %d, %s", verb, status, out)
		}
	}
}

func TestNoAgentErrorKeepsTheReason(t *testing.T) {
	err := noAgentError(cni.Call{Command: cni.Add}, fmt.Errorf("x: %w", wire.ErrDeadline))
	if err.Code != cni.CodeTryAgain || !errors.Is(err, wire.ErrDeadline) {
		t.Errorf("%+v", err)
	}
}

// Killing a delegate is not enough: what it started may hold its pipes.
func TestDelegateThatLeavesAChild(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := (Delegates{}).Release(ctx, attach.Key{Network: "n", ContainerID: "c", Ifname: "i"}, script(t, "sleep 60; true"))
	if took := time.Since(start); err == nil || took > 30*time.Second {
		t.Errorf("answered %v after %s", err, took)
	}
}

func TestHostLocalReservationsAreReleased(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/net", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"10.0.0.7": "c1\r\neth0", "10.0.0.8": "c1\r\nnet1", "10.0.0.9": "c2\r\neth0", "10.0.0.10": "c1", "last_reserved_ip.0": "c1",
	} {
		if err := os.WriteFile(dir+"/net/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := releaseHostLocal(dir, "net", "c1", "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir + "/net")
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); err != nil || got != "10.0.0.8 10.0.0.9 last_reserved_ip.0" {
		t.Errorf("left are %s, %v", got, err)
	}
}

func TestPanicAfterTheAnswerIsOnlyTold(t *testing.T) {
	var stderr bytes.Buffer
	Process{Stderr: &stderr}.finish(func() { panic("boom") })
	if !strings.Contains(stderr.String(), "boom") {
		t.Errorf("standard error %q", stderr.String())
	}
}
