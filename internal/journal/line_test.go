// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

func TestEntryOf(t *testing.T) {
	good := string(bytes.TrimSuffix(appendLine(nil, "config 9 {}"), []byte("\n")))
	sum, text := good[:crcDigits], good[crcDigits:]
	if want := fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte("config 9 {}"))); sum != want {
		t.Fatalf("checksum %s, want %s", sum, want)
	}
	if entry, reason := entryOf([]byte(good)); entry != "config 9 {}" || reason != "" {
		t.Fatalf("got %q, %q", entry, reason)
	}
	for name, tc := range map[string]struct{ line, reason string }{
		"empty":            {"", "does not begin with a checksum"},
		"checksum alone":   {sum, "does not begin with a checksum"},
		"no space":         {sum + text[1:], "does not begin with a checksum"},
		"capitals":         {"ABCDEF01" + text, "not lower-case hexadecimal"},
		"not a digit":      {sum[:3] + "g" + sum[4:] + text, "not lower-case hexadecimal"},
		"blank":            {sum[:7] + " " + text, "not lower-case hexadecimal"},
		"another checksum": {"00000000" + text, "does not match"},
		"another text":     {good + " ", "does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			if entry, reason := entryOf([]byte(tc.line)); entry != "" || !strings.Contains(reason, tc.reason) {
				t.Fatalf("got %q, %q; want %q", entry, reason, tc.reason)
			}
		})
	}
}
