// SPDX-License-Identifier: Apache-2.0

//go:build crashpoints

package crash

import (
	"os"
	"strings"
	"sync"
	"syscall"
)

var mu sync.Mutex

// Point kills the process by SIGKILL if the file named by WEFT_CRASH_FILE
// holds this name; the file is removed first, so that a restarted process
// survives. Otherwise it appends the name to the file named by
// WEFT_CRASH_TRACE, where that is set.
func Point(name string) {
	mu.Lock()
	defer mu.Unlock()
	if file := os.Getenv("WEFT_CRASH_FILE"); file != "" {
		if want, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(want)) == name {
			_ = os.Remove(file)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
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
