// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/crash"
)

// IPAMName is the name under which the binary is an IPAM plugin.
const IPAMName = "weft-ipam"

// Process is what the operating system gave the plugin.
type Process struct {
	Name   string              // argv[0]
	Getenv func(string) string // the environment
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Main serves one call and returns the exit status: 0, or 1 with an error
// object on standard output. Nothing else is ever written there.
func Main(p Process) int {
	start := time.Now()
	call := cni.CallFromEnv(p.Getenv, nil)
	if call.Command == cni.Version {
		return p.version()
	}
	stdin, err := io.ReadAll(io.LimitReader(p.Stdin, maxStdin+1))
	if err != nil || len(stdin) > maxStdin {
		return p.fail(start, call, nil, cni.Errorf(cni.CodeIO, "read the configuration from standard input (at most %d bytes): %w", maxStdin, err))
	}
	call.Stdin = stdin
	out, cfg, cerr, after := p.serve(call)
	status := 0
	if cerr != nil {
		status = p.fail(start, call, cfg, cerr)
	} else {
		crash.Point("answer:before")
		if _, err := p.Stdout.Write(out); err != nil {
			status = 1
		}
		crash.Point("answer:after")
		p.log(start, call, cfg, "ok")
	}
	if after != nil {
		after()
	}
	return status
}

// maxStdin bounds the configuration in bytes.
const maxStdin = 1 << 20

// version answers VERSION, for which nothing but the verb is required.
func (p Process) version() int {
	version := ""
	if ready(p.Stdin) {
		if stdin, err := io.ReadAll(io.LimitReader(p.Stdin, maxStdin)); err == nil {
			version = cni.VersionOf(stdin)
		}
	}
	if _, err := p.Stdout.Write(cni.VersionReply(version)); err != nil {
		return 1
	}
	return 0
}

// serve decides who answers. after is what to do once the answer is out.
func (p Process) serve(call cni.Call) (out []byte, cfg *cni.Config, cerr *cni.Error, after func()) {
	defer func() {
		// A panic would print a trace and nothing on standard output, and the
		// runtime would show the operator neither code nor message.
		if r := recover(); r != nil {
			cerr = cni.Errorf(cni.CodeInternal, "internal error: %v; please report it", r)
		}
	}()
	if cerr := call.Check(); cerr != nil {
		return nil, nil, cerr, nil
	}
	parse := cni.ParseConfig
	if filepath.Base(p.Name) == IPAMName {
		parse = cni.ParseIPAMCall
	}
	cfg, cerr = parse(call)
	if cerr != nil {
		return nil, nil, cerr, nil
	}
	deadline := time.Now().Add(cfg.Timeout)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	finish := func() {}
	switch {
	case filepath.Base(p.Name) == IPAMName:
		out, cerr, finish = serveIPAM(ctx, call, cfg)
	case cfg.Thick():
		out, cerr = Forward(ctx, call, cfg, deadline)
	default:
		out, cerr, finish = thin(ctx, call, cfg)
	}
	return out, cfg, cerr, func() {
		finish()
		cancel()
	}
}

// fail prints the error object and logs the failure.
func (p Process) fail(start time.Time, call cni.Call, cfg *cni.Config, cerr *cni.Error) int {
	version := cni.VersionOf(call.Stdin)
	if _, err := p.Stdout.Write(cerr.Encode(version)); err != nil {
		fmt.Fprintln(p.Stderr, "weft-cni: write the error object:", err)
	}
	p.log(start, call, cfg, fmt.Sprintf("code=%d error=%q", cerr.Code, cerr.Error()))
	return 1
}
