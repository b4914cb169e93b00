// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// memory is what the agent occupied, in MiB.
type memory struct {
	Resident  footprint // with a full node
	Crowded   footprint // and a large cluster around it, which came while it was running
	Restarted footprint // the next agent, which found all of that
	// Pods and Leases are how many there were in the end, by the API and by the
	// agent.
	Pods, Leases int
}

// footprint is of one process.
type footprint struct {
	RSS  float64 // VmRSS of proc(5): all resident pages; the most of several looks
	PSS  float64 // pages shared with others counted in part, at the last look
	Peak float64 // VmHWM of proc(5): the most that RSS ever was
}

func (f footprint) String() string {
	return fmt.Sprintf("RSS %.1f MiB, PSS %.1f MiB, peak %.1f MiB", f.RSS, f.PSS, f.Peak)
}

// measureMemory fills the node and invents the rest of the cluster.
func measureMemory(ctx context.Context, c *contender, x extent) (memory, error) {
	var m memory
	b, err := newBatch(ctx, c.Client(), "resident", x.Resident)
	if err != nil {
		return m, err
	}
	defer b.watch.Stop()
	if err := b.start(ctx, c.node.Name); err != nil {
		return m, err
	}
	if m.Resident, err = c.settled(ctx); err != nil {
		return m, err
	}
	progress("memory with %d pods: %s", x.Resident, m.Resident)
	if err := c.makeNamespace(ctx, crowdNamespace); err != nil {
		return m, err
	}
	w, err := newCrowd(ctx, c, x.Nodes, x.Elsewhere)
	if err != nil {
		return m, err
	}
	if err := w.gather(ctx); err != nil {
		return m, err
	}
	if err := c.knows(ctx, x.Nodes); err != nil {
		return m, err
	}
	if m.Crowded, err = c.settled(ctx); err != nil {
		return m, err
	}
	progress("memory with %d nodes and %d pods elsewhere: %s", x.Nodes, x.Elsewhere, m.Crowded)
	if _, err := c.Kubectl(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/weft"); err != nil {
		return m, err
	}
	if err := c.rolledOut(ctx, "daemonset/weft"); err != nil {
		return m, err
	}
	if err := c.knows(ctx, x.Nodes); err != nil {
		return m, err
	}
	if m.Restarted, err = c.settled(ctx); err != nil {
		return m, err
	}
	progress("memory after a restart: %s", m.Restarted)
	m.Leases = x.Nodes
	m.Pods, err = c.countPods(ctx)
	return m, err
}

func (c *contender) countPods(ctx context.Context) (int, error) {
	list, err := c.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	}
	return count, nil
}

// knows returns when the agent uses the leases of that many other nodes, and the
// kernel has all that follows from them.
func (c *contender) knows(ctx context.Context, leases int) error {
	return await(ctx, time.Minute, fmt.Sprintf("the agent to use %d leases of others", leases), func(ctx context.Context) error {
		text, err := c.node.Get(ctx, "http://127.0.0.1:9119/metrics")
		if err != nil {
			return err
		}
		families, err := parseMetrics(text)
		if err != nil {
			return err
		}
		sum := func(metric, label string) (total int) {
			for _, m := range families[metric].GetMetric() {
				if label == "" || m.GetLabel()[0].GetValue() == label {
					total += int(m.GetGauge().GetValue())
				}
			}
			return total
		}
		others, rejected, pending := sum("weft_leases", "others"), sum("weft_rejected_leases", ""), sum("weft_reconcile_pending_objects", "")
		if others != leases || pending != 0 {
			return fmt.Errorf("it uses %d, rejects %d, and %d objects are not in the kernel yet", others, rejected, pending)
		}
		return nil
	})
}

// The agent is watched for settleTime, after which its memory has become what it
// stays at.
const (
	settleTime  = 15 * time.Second
	settleLooks = 15
)

// settled looks several times and returns the most.
func (c *contender) settled(ctx context.Context) (footprint, error) {
	var f footprint
	tick := time.NewTicker(settleTime / settleLooks)
	defer tick.Stop()
	for range settleLooks {
		select {
		case <-ctx.Done():
			return f, context.Cause(ctx)
		case <-tick.C:
		}
		out, err := c.node.Exec(ctx, "sh", "-c", readAgent)
		if err != nil {
			return f, err
		}
		now, err := parseFootprint(out)
		if err != nil {
			return f, err
		}
		f = footprint{RSS: max(f.RSS, now.RSS), PSS: now.PSS, Peak: max(f.Peak, now.Peak)}
	}
	return f, nil
}

// readAgent prints what the kernel says of the agent's memory. Processes may end
// while it looks.
const readAgent = `for p in /proc/[0-9]*; do
	case "$(tr '\0' ' ' 2>/dev/null <"$p/cmdline")" in
	"/weft agent "*) grep -hE '^(VmRSS|VmHWM|Pss):' "$p/status" "$p/smaps_rollup" ;;
	esac
done`

// parseFootprint reads lines such as "VmRSS:     1234 kB", of one process.
func parseFootprint(text string) (footprint, error) {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			return footprint{}, fmt.Errorf("read the agent's memory: expected a label and kB, found %q", line)
		}
		if _, twice := values[fields[0]]; twice {
			return footprint{}, fmt.Errorf("read the agent's memory: expected one agent on the node, found more")
		}
		kB, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return footprint{}, fmt.Errorf("read the agent's memory: %w", err)
		}
		values[fields[0]] = kB / 1024
	}
	if len(values) != 3 {
		return footprint{}, fmt.Errorf("read the agent's memory: expected VmRSS, VmHWM and Pss of one agent, found %q", text)
	}
	// The kernel keeps both loosely: the one may be ahead of the other.
	peak := max(values["VmHWM:"], values["VmRSS:"])
	return footprint{RSS: values["VmRSS:"], Peak: peak, PSS: values["Pss:"]}, nil
}
