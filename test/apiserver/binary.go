// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Binary returns the path of a component's binary, of the version that was
// built last. Without one it skips the test.
func Binary(t testing.TB, component, name string) string {
	t.Helper()
	home, _ := os.UserHomeDir()
	cache := filepath.Join(cmp.Or(os.Getenv("WEFT_CACHE"), filepath.Join(home, ".cache", "weft")), "components")
	found, _ := filepath.Glob(filepath.Join(cache, component+"-v*", name)) // the pattern is good
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(modified(a), modified(b)) })
	}
	message := "%s is not in " + cache + ": run test/components/build.sh " + component + " (make test does)"
	if os.Getenv("WEFT_COMPONENTS") == "required" {
		t.Fatalf(message, name)
	}
	t.Skipf(message, name)
	return ""
}

func modified(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}
