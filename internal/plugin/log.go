// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/cni"
)

// log writes one line for the call to standard error and, where the
// configuration names one, to the log file. A log that cannot be written does
// not fail the call.
func (p Process) log(start time.Time, call cni.Call, logFile, outcome string) {
	line := fmt.Sprintf("%s weft-cni verb=%s pod=%s container=%s ifname=%s ms=%.1f %s\n",
		start.UTC().Format("2006-01-02T15:04:05.000Z"), call.Command, PodName(call), orDash(call.ContainerID), orDash(call.Ifname),
		float64(time.Since(start).Microseconds())/1000, outcome)
	_, _ = io.WriteString(p.Stderr, line)
	if logFile == "" {
		return
	}
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(p.Stderr, "weft-cni: logFile:", err)
		return
	}
	// One write: lines of concurrent calls do not mix.
	_, _ = f.WriteString(line)
	_ = f.Close()
}

// PodName returns namespace/name of the pod that a call is for, "-" if unknown.
func PodName(call cni.Call) string {
	args, err := cni.ParseArgs(call.Args)
	if err != nil {
		return "-"
	}
	return orDash(args.Pod.String())
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// ready reports whether reading would not wait: VERSION must not hang on a
// standard input that nobody writes to or closes.
func ready(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, versionWaitMillis)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLNVAL == 0
}

// versionWaitMillis is how long VERSION waits for its input, which it needs
// only to echo the version.
const versionWaitMillis = 500
