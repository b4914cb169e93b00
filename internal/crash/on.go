// SPDX-License-Identifier: Apache-2.0

//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var mu sync.Mutex

// Point kills the process by SIGKILL if the file named by WEFT_CRASH_FILE
// holds this name and a 1; the file is removed first, so that a restarted
// process survives. A larger number after the name is counted down: the process
// dies when it passes the point for that time. Otherwise Point appends the name
// to the file named by WEFT_CRASH_TRACE, where that is set.
func Point(name string) {
	mu.Lock()
	defer mu.Unlock()
	if file := os.Getenv("WEFT_CRASH_FILE"); file != "" && due(file, name) {
		_ = os.Remove(file)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
	if trace := os.Getenv("WEFT_CRASH_TRACE"); trace != "" {
		f, err := os.OpenFile(trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
}

// due counts one passage of the point down.
func due(file, name string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	want, times, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	left, err := strconv.Atoi(times)
	if want != name || err != nil {
		return false
	}
	if left > 1 {
		_ = os.WriteFile(file, []byte(name+" "+strconv.Itoa(left-1)), 0o600)
		return false
	}
	return true
}
