// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/crash"
	"weft.dev/weft/internal/engine"
)

// delegateOf returns the IPAM plugin of somebody else that the configuration
// names; nil where the addresses are ours.
func delegateOf(call cni.Call, cfg *cni.Config) *facts.Delegate {
	if cfg.IPAM == nil || cfg.IPAM.Builtin() {
		return nil
	}
	return &facts.Delegate{Type: cfg.IPAM.Type, Path: call.Path, Config: call.Stdin}
}

// Delegates executes the DEL of an IPAM plugin long after its ADD.
type Delegates struct{}

// Release implements engine.Delegates.
func (Delegates) Release(ctx context.Context, k attach.Key, d facts.Delegate) error {
	ctx, cancel := context.WithTimeout(ctx, delegateTimeout)
	defer cancel()
	call := cni.Call{Command: cni.Del, ContainerID: k.ContainerID, Ifname: k.Ifname, Path: d.Path}
	return delegateRun(ctx, d, call)
}

// A delegate that hangs must not hold up for ever those who undo or collect
// without a deadline of their own.
const (
	delegateTimeout = 10 * time.Second
	delegateLinger  = time.Second
)

// delegateRun executes a delegate with the call's verb; it returns nil or a
// *cni.Error.
func delegateRun(ctx context.Context, d facts.Delegate, call cni.Call) error {
	if _, err := execPlugin(ctx, d, call); err != nil {
		return err
	}
	return nil
}

// delegateAdd executes ADD and parses the result, which has addresses but no
// interfaces (specification, section 4: "Delegated plugins").
func delegateAdd(ctx context.Context, d facts.Delegate, call cni.Call) (cni.Result, error) {
	out, cerr := execPlugin(ctx, d, call)
	if cerr != nil {
		return cni.Result{}, cerr
	}
	result, err := cni.ParseResult(out, cni.VersionOf(d.Config))
	if err != nil {
		return cni.Result{}, cni.Errorf(cni.CodeDelegate, "IPAM plugin %q: parse its result: %w", d.Type, err)
	}
	if len(result.IPs) == 0 {
		return cni.Result{}, cni.Errorf(cni.CodeDelegate, "IPAM plugin %q: its result has no address", d.Type)
	}
	return result, nil
}

func grantOf(r cni.Result) engine.Granted {
	g := engine.Granted{Routes: r.Routes}
	for _, ip := range r.IPs {
		g.Addresses = append(g.Addresses, attach.Address{Addr: ip.Address.Addr(), Subnet: ip.Address.Masked(), Gateway: ip.Gateway})
	}
	return g
}

// execPlugin runs a plugin by the specification's execution protocol. The
// reference library would do, but it links net/http.
func execPlugin(ctx context.Context, d facts.Delegate, call cni.Call) ([]byte, *cni.Error) {
	binary, err := findPlugin(d.Type, d.Path)
	if err != nil {
		return nil, cni.Errorf(cni.CodeConfig, "ipam.type %q: %w", d.Type, err)
	}
	call.Path = d.Path
	cmd := exec.CommandContext(ctx, binary)
	// A process that the plugin started may keep its pipes open after its death.
	cmd.WaitDelay = delegateLinger
	cmd.Env = append(withoutCNI(os.Environ()), call.Env()...)
	cmd.Stdin = bytes.NewReader(d.Config)
	var stdout, stderr bytes.Buffer
	// What a plugin says on standard error is for the operator, also when it
	// succeeds.
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, os.Stderr)
	crash.Point("delegate:before")
	err = cmd.Run()
	crash.Point("delegate:after")
	if err != nil {
		return nil, pluginError(d.Type, call.Command, err, stdout.Bytes(), stderr.String())
	}
	return stdout.Bytes(), nil
}

// pluginError reads the error object that a failed plugin printed; its code
// reaches the runtime unchanged.
func pluginError(name, verb string, err error, stdout []byte, stderr string) *cni.Error {
	if object, derr := cni.DecodeError(stdout); derr == nil {
		return &cni.Error{Code: object.Code, Msg: fmt.Sprintf("IPAM plugin %q, %s: %s", name, verb, object.Msg), Details: object.Details}
	}
	return cni.Errorf(cni.CodeDelegate, "IPAM plugin %q, %s: %w, without an error object; standard error: %q", name, verb, err, strings.TrimSpace(stderr))
}

// findPlugin looks for the executable in the directories of CNI_PATH.
func findPlugin(name, path string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return "", errors.New("want the name of an executable, without a slash")
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			continue
		}
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("no executable of this name in CNI_PATH=%q", path)
}

func withoutCNI(env []string) []string {
	kept := env[:0:0]
	for _, v := range env {
		if !strings.HasPrefix(v, "CNI_") {
			kept = append(kept, v)
		}
	}
	return kept
}
