// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft.dev/weft/internal/kubectl"
)

// What the user writes, and what a node is asked.
func TestKubectlPlugin(t *testing.T) {
	const usual = 15 * time.Second
	type run struct {
		target  kubectl.Target
		command kubectl.Command
	}
	everywhere := kubectl.Target{Timeout: usual}
	for line, want := range map[string]struct {
		run run
		err string
	}{
		"status":                       {run{everywhere, kubectl.Command{Args: []string{"status"}}}, ""},
		"--node w3 status -o json":     {run{kubectl.Target{Node: "w3", Timeout: usual}, kubectl.Command{Args: []string{"status"}, Format: "json"}}, ""},
		"status --output=yaml -n x":    {run{kubectl.Target{Namespace: "x", Timeout: usual}, kubectl.Command{Args: []string{"status"}, Format: "yaml"}}, ""},
		"status --wait 1m":             {run{kubectl.Target{Timeout: usual + time.Minute}, kubectl.Command{Args: []string{"status", "--wait=1m0s"}}}, ""},
		"status --wait 1m --timeout=0": {run{kubectl.Target{}, kubectl.Command{Args: []string{"status", "--wait=1m0s"}}}, ""},
		"pod trace shop/web-0":         {run{everywhere, kubectl.Command{Args: []string{"pod", "trace"}, Operands: []string{"shop/web-0"}, Pod: "shop/web-0"}}, ""},
		"pod --state-dir=/x show a/b --context c --kubeconfig k --timeout 1s": {run{kubectl.Target{Context: "c", Kubeconfig: "k", Timeout: time.Second},
			kubectl.Command{Args: []string{"pod", "show", "--state-dir=/x"}, Operands: []string{"a/b"}, Pod: "a/b"}}, ""},
		"pod trace":                {run{everywhere, kubectl.Command{Args: []string{"pod", "trace"}}}, ""},
		"node show -- --strange":   {run{everywhere, kubectl.Command{Args: []string{"node", "show"}, Operands: []string{"--strange"}}}, ""},
		"ipam show --addresses":    {run{everywhere, kubectl.Command{Args: []string{"ipam", "show", "--addresses=true"}}}, ""},
		"ipam release x --node w3": {run{kubectl.Target{Node: "w3", Timeout: usual}, kubectl.Command{Args: []string{"ipam", "release"}, Operands: []string{"x"}}}, ""},

		"ipam release x":       {run{}, "kubectl weft ipam release changes what a node has: say which by --node"},
		"ipam check --repair":  {run{}, "wants the agent stopped"},
		"status --timeout -5s": {run{}, "want a duration, or 0"},
		"status -o xml":        {run{}, `output format "xml"`},
		"stauts":               {run{}, "Did you mean this?\n\tstatus"},
		"pod lst":              {run{}, `unknown command "lst" for "kubectl weft pod"`},
		"pod show":             {run{}, "accepts 1 arg"},
		"agent --config x":     {run{}, "unknown command"},
		"uninstall":            {run{}, `unknown command "uninstall"`},
	} {
		t.Run(line, func(t *testing.T) {
			var got run
			root := newKubectlPlugin("v1", func(_ context.Context, target kubectl.Target, c kubectl.Command, _, _ io.Writer) error {
				got = run{target, c}
				return nil
			})
			root.SetArgs(strings.Fields(line))
			err := root.Execute()
			if len(got.command.Operands) == 0 {
				got.command.Operands = nil
			}
			if !reflect.DeepEqual(got, want.run) || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, want.run, want.err)
			}
		})
	}
}

// The words that go to a node mean there what they meant here.
func TestKubectlPluginArrives(t *testing.T) {
	for _, line := range []string{"status --wait 1m", "pod --state-dir=/x show -- -a/b", "ipam check --history", "node list -o yaml"} {
		var here, there []string
		note := func(into *[]string) func(c *cobra.Command, args []string) error {
			return func(c *cobra.Command, args []string) error {
				*into = append(*into, c.Name())
				c.Flags().Visit(func(f *pflag.Flag) { *into = append(*into, f.Name+"="+f.Value.String()) })
				*into = append(*into, args...)
				return nil
			}
		}
		var sent []string
		plugin := newKubectlPlugin("v1", func(_ context.Context, _ kubectl.Target, c kubectl.Command, _, _ io.Writer) error {
			sent = c.Argv(false)[1:]
			return nil
		})
		plugin.SetArgs(strings.Fields(line))
		if err := plugin.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, side := range []struct {
			args []string
			into *[]string
		}{{strings.Fields(line), &here}, {sent, &there}} {
			root := New("v1")
			eachCommand(root, func(c *cobra.Command) { c.RunE = note(side.into) })
			root.SetArgs(side.args)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(here, there) || len(here) == 0 {
			t.Errorf("%q is %q, and on a node, as %q, %q", line, here, sent, there)
		}
	}
}

// No flag of a command is hidden by one of the plugin's.
func TestKubectlPluginFlags(t *testing.T) {
	own := newKubectlPlugin("v1", nil).PersistentFlags()
	eachCommand(New("v1"), func(c *cobra.Command) {
		switch top, _, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), "weft "), " "); top {
		case "status", "node", "lease", "route", "pod", "ipam":
		default:
			return
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if own.Lookup(f.Name) != nil || f.Shorthand != "" && own.ShorthandLookup(f.Shorthand) != nil {
				t.Errorf("%s: flag --%s is the plugin's too", c.CommandPath(), f.Name)
			}
			switch f.Value.Type() { // whose text is what sets them
			case "bool", "string", "duration", "int":
			default:
				t.Errorf("%s: flag --%s is a %s: can it be sent as text?", c.CommandPath(), f.Name, f.Value.Type())
			}
		})
	})
}

func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

// Without a command, help; with the first letters of one, how it goes on.
func TestKubectlPluginHelps(t *testing.T) {
	for line, want := range map[string]string{
		"":                                    "Available Commands:",
		"help pod trace":                      "kubectl weft pod trace default/web-0",
		"--version":                           "kubectl weft version v1",
		cobra.ShellCompRequestCmd + " pod tr": "trace\t",
		cobra.ShellCompRequestCmd + " ":       "status\t",
	} {
		var out strings.Builder
		root := newKubectlPlugin("v1", nil)
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(strings.Fields(line))
		if line != "" && strings.HasSuffix(line, " ") {
			root.SetArgs([]string{strings.TrimSpace(line), ""})
		}
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %s", line, err, &out)
		}
	}
	for name, want := range map[string]bool{"/usr/bin/kubectl-weft": true, "kubectl_complete-weft": true, "weft": false, "kubectl": false} {
		if IsKubectlPlugin(name) != want {
			t.Errorf("%s is a plugin: %v", name, !want)
		}
	}
}
