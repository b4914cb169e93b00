// SPDX-License-Identifier: Apache-2.0

// Command weft-cni is the CNI plugin of Weft; executed as weft-ipam it is an
// IPAM plugin for others.
package main

import (
	"os"
	"runtime/debug"

	"weft.dev/weft/internal/plugin"
)

func main() {
	// The process lives for milliseconds: collecting garbage would cost more
	// than it frees.
	debug.SetGCPercent(-1)
	os.Exit(plugin.Main(plugin.Process{
		Name:   os.Args[0],
		Getenv: os.Getenv,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}))
}
