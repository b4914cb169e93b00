// SPDX-License-Identifier: Apache-2.0

// Command pause does nothing, and reaps: the first process of a PID namespace.
// It is what pods' sandboxes run, and what keeps the namespaces of a host of the
// test cluster.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Registered before the first child can end. The channel holds one, which
	// is enough: one look reaps all that have ended.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) == 2 && os.Args[1] == "holder" {
		report()
	}
	for {
		select {
		case <-end:
			return
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
					break
				}
			}
		}
	}
}

// report tells who started a host that it is there. Not earlier: while a process
// executes a program, for a moment, its environment cannot be read.
func report() {
	pipe := os.NewFile(3, "pipe")
	_, _ = pipe.WriteString("ready") // without a reader there is no one to tell
	_ = pipe.Close()
}
