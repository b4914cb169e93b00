// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"weft.dev/weft/test/crash/node"
)

func TestMain(m *testing.M) { os.Exit(node.Run(m, "")) }

// number reads an environment variable.
func number(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

func pairs(t *testing.T) int {
	t.Helper()
	n := int(number(t, "WEFT_SOAK_PAIRS", 10000))
	if n < 100 {
		t.Fatalf("WEFT_SOAK_PAIRS=%d: want at least 100", n)
	}
	return n
}

func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(number(t, "WEFT_SOAK_SEED", time.Now().UnixNano()&0xffffff))
	fmt.Printf("soak: %s: WEFT_SOAK_SEED=%d\n", t.Name(), s)
	return s
}
