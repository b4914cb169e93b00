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
	if err := cli.New(version).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weft:", err)
		os.Exit(1)
	}
}
