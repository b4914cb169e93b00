// SPDX-License-Identifier: Apache-2.0

// Command weft-cni is the CNI plugin of Weft; executed as weft-ipam it is an
// IPAM plugin for others.
package main

import (
	"os"

	"weft.dev/weft/internal/plugin"
)

func main() {
	os.Exit(plugin.Main(plugin.Process{
		Name:   os.Args[0],
		Getenv: os.Getenv,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}))
}
