// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/report"
)

func newPodTrace(s *stateFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "trace [POD]",
		Short: "Show what happened when as pods got their network on this node",
		Long: `Show what happened when as pods got their network on this node, or lost it.

POD is namespace/name, a name, a UID, or the beginning of a container id; without
it, all calls that the agent remembers are shown. Each line is a moment and the
time since the one before. Times of the API server are in whole seconds and come
first. Which component is at work between two moments, and what to do if it takes
long, is in docs/sequence.md.`,
		Example: "  weft pod trace default/web-0",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := s.node().Timelines()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				list = slices.DeleteFunc(list, func(t report.Timeline) bool { return !concerns(t, args[0]) })
				if len(list) == 0 {
					return fmt.Errorf("pod %q: the agent remembers no ADD or DEL for it; it remembers the last few hundred of this node, since it started", args[0])
				}
			}
			var steps []report.Step
			for _, t := range list {
				steps = append(steps, t.Steps()...)
			}
			return print(cmd, s, steps)
		},
	}
}

// concerns reports whether a timeline is of the pod that the user names.
func concerns(t report.Timeline, pod string) bool {
	_, name, _ := strings.Cut(t.Pod, "/")
	return pod != "" && (t.Pod == pod || name == pod || t.UID == pod || strings.HasPrefix(t.ContainerID, pod))
}
