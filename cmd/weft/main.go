// SPDX-License-Identifier: Apache-2.0

// Command weft is the node agent and the operator's tool.
package main

import (
	"fmt"
	"os"

	"weft.dev/weft/internal/cli"
)

// version is set at link time.
var version = "dev"

func main() {
	root := cli.New(version)
	if cli.IsKubectlPlugin(os.Args[0]) {
		root = cli.NewKubectlPlugin(version)
	}
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weft:", err)
		os.Exit(1)
	}
}
