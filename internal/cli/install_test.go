// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/install"
	"weft.dev/weft/internal/kernel/nstest"
)

// run executes a command and returns its standard output.
func run(ctx context.Context, cmd *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(new(bytes.Buffer))
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// installed installs a plugin and returns the flags of uninstall for that node.
func installed(t *testing.T) (root string, flags []string) {
	t.Helper()
	root = t.TempDir()
	from, bin := filepath.Join(root, "image/weft-cni"), filepath.Join(root, "bin")
	if err := os.Mkdir(filepath.Dir(from), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from, []byte("plugin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := run(context.Background(), newInstallCommand(), "--bin-dir", bin, "--from", from); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weft-cni", "weft-ipam"} {
		if content, err := os.ReadFile(filepath.Join(bin, name)); err != nil || string(content) != "plugin" {
			t.Fatalf("%s: %q, %v", name, content, err)
		}
	}
	return root, []string{
		"--bin-dir", bin, "--conf-file", filepath.Join(root, "net.d/10-weft.conflist"), "--state-dir", filepath.Join(root, "run/weft"), "-o", "json",
	}
}

func TestInstallWithoutPlugin(t *testing.T) {
	_, err := run(context.Background(), newInstallCommand(), "--bin-dir", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "weft-cni") {
		t.Errorf("without a plugin beside the program: %v", err)
	}
}

func TestUninstallCommand(t *testing.T) {
	root, flags := installed(t)
	nstest.New(t).Do(func() {
		out, err := run(context.Background(), newUninstallCommand(), flags...)
		if err != nil {
			t.Fatal(err)
		}
		var rows []install.Outcome
		if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 2 || rows[1].Object != "plugin "+filepath.Join(root, "bin/weft-cni") {
			t.Errorf("%v, rows %+v; want the plugin's two names", err, rows)
		}
		// Again, with --stay: until it is told to end.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if out, err := run(ctx, newUninstallCommand(), append(flags, "--stay")...); err != nil || strings.TrimSpace(out) != "[]" {
			t.Errorf("again: %q, %v", out, err)
		}
	})
}
