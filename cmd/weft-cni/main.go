// SPDX-License-Identifier: Apache-2.0

// Command weft-cni is the CNI plugin of Weft; executed as weft-ipam it is an
// IPAM plugin for others.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"weft.dev/weft/internal/plugin"
)

// version is set at link time.
var version = "dev"

func main() {
	if len(os.Args) > 1 { // a person: runtimes pass everything by environment and standard input
		fmt.Printf("%s %s, a CNI plugin: the container runtime executes it\n", filepath.Base(os.Args[0]), version)
		return
	}
	os.Exit(plugin.Main(plugin.Process{
		Name:   os.Args[0],
		Getenv: os.Getenv,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}))
}
