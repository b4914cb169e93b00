// SPDX-License-Identifier: Apache-2.0

// Command nothing does nothing: what it costs to execute it is what a static
// Go program costs at the least.
package main

func main() {}
