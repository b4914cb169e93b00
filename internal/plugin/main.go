// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/crash"
	"weft.dev/weft/internal/wire"
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
		return p.fail(start, call, "", cni.Errorf(cni.CodeIO, "read the configuration from standard input (at most %d bytes): %w", maxStdin, err))
	}
	call.Stdin = stdin
	out, logFile, cerr, after := p.serve(start, call)
	status := 0
	if cerr != nil {
		status = p.fail(start, call, logFile, cerr)
	} else {
		crash.Point("answer:before")
		if _, err := p.Stdout.Write(out); err != nil {
			status = 1
		}
		crash.Point("answer:after")
		p.log(start, call, logFile, "ok")
	}
	if after != nil {
		p.finish(after)
	}
	return status
}

// finish does what is left once the answer is out. A panic there must not turn
// an ADD that succeeded into one that the runtime takes for failed.
func (p Process) finish(after func()) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintln(p.Stderr, "weft-cni: internal error after the answer:", r)
		}
	}()
	after()
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

// serve decides who answers. after is what to do once the answer is out; nil:
// nothing.
func (p Process) serve(start time.Time, call cni.Call) (out []byte, logFile string, cerr *cni.Error, after func()) {
	defer func() {
		// A panic would print a trace and nothing on standard output, and the
		// runtime would show the operator neither code nor message.
		if r := recover(); r != nil {
			cerr = cni.Errorf(cni.CodeInternal, "internal error: %v; please report it", r)
		}
	}()
	if cerr := call.Check(); cerr != nil {
		return nil, "", cerr, nil
	}
	ipam := filepath.Base(p.Name) == IPAMName
	from := wire.Origin{Started: start.UnixNano(), TraceParent: p.Getenv("TRACEPARENT")}
	if to, ok := cni.ParseForwarding(call.Stdin); ok && !ipam {
		ctx := deadline(to.Timeout)
		defer ctx.end()
		out, cerr := forward(ctx, call, to, from)
		return out, to.LogFile, cerr, nil
	}
	parse := cni.ParseConfig
	if ipam {
		parse = cni.ParseIPAMCall
	}
	cfg, cerr := parse(call)
	if cerr != nil {
		return nil, "", cerr, nil
	}
	ctx := deadline(cfg.Timeout)
	var finish func()
	switch {
	case ipam:
		out, cerr, finish = serveIPAM(ctx, call, cfg)
	case cfg.Thick():
		out, cerr = forward(ctx, call, cfg.Forwarding(), from)
	default:
		out, cerr, finish = thin(ctx, call, cfg)
	}
	return out, cfg.LogFile, cerr, func() {
		if finish != nil {
			finish()
		}
		ctx.end()
	}
}

// fail prints the error object and logs the failure.
func (p Process) fail(start time.Time, call cni.Call, logFile string, cerr *cni.Error) int {
	version := cni.VersionOf(call.Stdin)
	if _, err := p.Stdout.Write(cerr.Encode(version)); err != nil {
		fmt.Fprintln(p.Stderr, "weft-cni: write the error object:", err)
	}
	p.log(start, call, logFile, fmt.Sprintf("code=%d error=%q", cerr.Code, cerr.Error()))
	return 1
}
