// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "weft.dev/weft/"

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// load lists packages with their direct and indirect imports, for Linux.
func load(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, patterns...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatalf("no packages match %v", patterns)
	}
	return packages
}

// under reports whether path is one of the packages named, or below one.
func under(path string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return path == name || strings.HasPrefix(path, name+"/")
	})
}

// The pure core computes values from values. Anything that could do I/O, read
// a clock, draw a random number, log, or know the kernel or Kubernetes is kept
// out of the packages that it imports directly.
func TestCoreIsPure(t *testing.T) {
	forbidden := []string{
		"os", "io", "io/fs", "net", "time", "sync", "context", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand",
		"syscall", "runtime", "os/exec", "golang.org/x/sys", "github.com", "k8s.io", "sigs.k8s.io",
	}
	for _, p := range load(t, module+"internal/core/...") {
		for _, imported := range p.Imports {
			if imported == "net/netip" {
				continue
			}
			if slices.Contains(forbidden, imported) || under(imported, "golang.org/x/sys", "github.com", "k8s.io", "sigs.k8s.io") {
				t.Errorf("%s imports %s: the core is pure", p.ImportPath, imported)
			}
			if strings.HasPrefix(imported, module) && !under(imported, module+"internal/core") {
				t.Errorf("%s imports %s: the core depends on nothing outside the core", p.ImportPath, imported)
			}
		}
	}
}

// Each layer may import only what is listed for it, and the core. Tests are
// free.
func TestDirectionOfDependencies(t *testing.T) {
	in := func(names ...string) []string {
		for i, n := range names {
			names[i] = module + n
		}
		return names
	}
	allowed := map[string][]string{
		"api/v1alpha1":             {},
		"internal/crash":           {},
		"internal/journal":         in("internal/crash"),
		"internal/kernel":          in("internal/crash"),
		"internal/cni":             {},
		"internal/wire":            in("internal/crash"),
		"internal/view":            {},
		"internal/engine":          in("internal/crash", "internal/kernel", "internal/journal"),
		"internal/plugin":          in("internal/crash", "internal/kernel", "internal/journal", "internal/cni", "internal/engine", "internal/wire"),
		"internal/report":          in("internal/view"),
		"internal/inspect":         in("api/v1alpha1", "internal/kernel", "internal/journal", "internal/cni", "internal/engine", "internal/wire", "internal/report", "internal/inspect/forward"),
		"internal/inspect/forward": {},

		"internal/registry":              {},
		"internal/registry/convert":      in("api/v1alpha1"),
		"internal/registry/directory":    in("api/v1alpha1", "internal/registry", "internal/registry/convert"),
		"internal/registry/kubernetes":   in("api/v1alpha1", "internal/registry", "internal/registry/convert"),
		"internal/registry/registrytest": in("internal/registry"),
		"internal/leasing":               in("internal/registry"),
		"internal/reconcile":             {},
		"internal/fabric":                in("internal/reconcile", "internal/registry"),
		"internal/agent": in("api/v1alpha1", "internal/kernel", "internal/journal", "internal/cni", "internal/engine", "internal/wire", "internal/plugin",
			"internal/registry", "internal/registry/directory", "internal/registry/kubernetes", "internal/leasing", "internal/fabric",
			"internal/reconcile", "internal/report", "internal/install", "internal/metrics", "internal/timeline"),
		"internal/metrics":  in("internal/cni"),
		"internal/timeline": in("internal/report"),
		"internal/kubectl":  {},
		"internal/install":  in("api/v1alpha1", "internal/cni", "internal/engine", "internal/journal", "internal/kernel", "internal/inspect", "internal/view"),

		"internal/repair": in("internal/kernel", "internal/journal", "internal/cni", "internal/engine", "internal/plugin", "internal/inspect"),
		"internal/lab":    in("api/v1alpha1", "internal/kernel", "internal/view", "internal/lab/probe"),
		"cmd/weft-cni":    in("internal/plugin"),
		"cmd/weft":        in("internal/cli"),
	}
	for name, list := range allowed {
		for _, p := range load(t, module+name) {
			for _, imported := range p.Imports {
				if strings.HasPrefix(imported, module) && !under(imported, module+"internal/core") && !slices.Contains(list, imported) {
					t.Errorf("%s imports %s: not allowed in this layer", p.ImportPath, strings.TrimPrefix(imported, module))
				}
			}
		}
	}
}

// weft-cni is started for every pod: what would make it large or slow to start
// must not get in, however indirectly.
func TestPluginStaysSmall(t *testing.T) {
	forbidden := []string{
		"net/http", "log/slog", "crypto/tls", "text/template", "html/template", "regexp", "encoding/gob", "testing",
		"google.golang.org", "k8s.io", "sigs.k8s.io", "github.com/spf13", "github.com/sirupsen", "go.uber.org/zap", "go.opentelemetry.io",
	}
	for _, p := range load(t, module+"cmd/weft-cni") {
		for _, dep := range p.Deps {
			if under(dep, forbidden...) {
				t.Errorf("weft-cni links %s", dep)
			}
		}
	}
}

// What looks up methods by name makes the linker keep every method of every type,
// some 6 MiB of which half becomes resident. (cobra has text/template, but does
// not reach what does that.) The tag is the Makefile's.
func TestMethodsCanBePruned(t *testing.T) {
	for _, p := range load(t, "-tags=grpcnotrace", module+"cmd/weft") {
		if slices.Contains(p.Deps, "html/template") {
			t.Errorf("%s links html/template; go list -deps tells who imports it", p.ImportPath)
		}
	}
}

// What is only for tests must not get into the product.
func TestProductDoesNotLinkTests(t *testing.T) {
	for _, p := range load(t, module+"cmd/...") {
		for _, dep := range p.Deps {
			if under(dep, module+"test", module+"internal/kernel/nstest", module+"internal/registry/registrytest", module+"internal/reconcile/drivertest", "pgregory.net/rapid", "go.uber.org/goleak") {
				t.Errorf("%s links %s", p.ImportPath, dep)
			}
		}
	}
}
