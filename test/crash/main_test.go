// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weft.dev/weft/test/crash/node"
)

// refpluginsEnv names the directory with the reference plugins.
const refpluginsEnv = "WEFT_CRASH_REFPLUGINS"

// parallelScenarios run at a time: most of the time the kernel is waited for.
const parallelScenarios = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(2)
	}
	os.Exit(node.Run(m, "crashpoints"))
}

// prepare builds the reference plugins where the toolchain can still be
// reached: outside of the test's own namespaces.
func prepare() error {
	if node.Bin() != "" {
		return nil
	}
	cmd := exec.Command("../refplugins/build.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("build the reference plugins: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := os.Setenv(refpluginsEnv, lines[len(lines)-1]); err != nil {
		return err
	}
	return setParallel()
}

// setParallel lets more scenarios run at once than there are processors,
// unless the command line says how many.
func setParallel() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	os.Args = append([]string{os.Args[0], "-test.parallel=" + parallelScenarios}, os.Args[1:]...)
	return nil
}
