// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weft.dev/weft/api/v1alpha1"
)

// When the list gets another name, while the agent runs or while it does not,
// there is one list afterwards: of two, the runtime would take the wrong one.
func TestListGetsAnotherName(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "99-other.conflist")
	if err := os.WriteFile(foreign, []byte(`{"name": "x", "plugins": [{"type": "bridge"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	running := recording(t)
	running.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	started := recording(t)
	started.log = running.log
	for _, step := range []struct {
		agent *Agent
		name  string
	}{
		{running, "10-weft.conflist"}, {running, "20-weft.conflist"}, {started, "05-weft.conflist"}, {started, "05-weft.conflist"},
	} {
		step.agent.inputs.config.CNI = &v1alpha1.CNIConfiguration{
			ConfFile: filepath.Join(dir, step.name), NetworkName: "weft", Socket: "/run/weft/agent.sock", StateDir: "/run/weft",
		}
		if err := step.agent.writeConflist(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{step.name, "99-other.conflist"}; !slices.Equal(names, want) {
			t.Errorf("there are %v, want %v", names, want)
		}
		if err := step.agent.rivals.now(); err != nil {
			t.Errorf("with %s: %v", step.name, err)
		}
	}
}
