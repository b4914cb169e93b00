// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// requests are what agents asked of the API server: how often, by verb and
// resource, such as "get pods".
type requests map[string]int

// requests reads the audit log, which the API server writes before it answers.
// A cluster without agents has none.
func (c *contender) requests() (requests, error) {
	if !c.counts {
		return requests{}, nil
	}
	log, err := os.ReadFile(filepath.Join(c.LogDir(), "audit.log"))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	r, err := countRequests(log)
	if err == nil && r.total() == 0 {
		// The agent has taken a block, at least: then nothing is not a good result.
		err = errors.New("read the audit log: expected the agent's requests, found none")
	}
	return r, err
}

// countRequests counts the entries of an audit log. Watches are left out: they
// begin anew by the clock, whatever happens to pods.
func countRequests(log []byte) (requests, error) {
	r := requests{}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var entry struct {
			Verb       string
			ObjectRef  struct{ Resource, Subresource string }
			RequestURI string
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("parse the audit log: %w", err)
		}
		if entry.Verb == "watch" {
			continue
		}
		what := entry.ObjectRef.Resource
		if what == "" {
			what, _, _ = strings.Cut(entry.RequestURI, "?")
		}
		if entry.ObjectRef.Subresource != "" {
			what += "/" + entry.ObjectRef.Subresource
		}
		r[entry.Verb+" "+what]++
	}
	return r, nil
}

// since returns what was added after before.
func (r requests) since(before requests) requests {
	added := requests{}
	for what, count := range r {
		if n := count - before[what]; n > 0 {
			added[what] = n
		}
	}
	return added
}

func (r requests) total() int {
	sum := 0
	for _, count := range r {
		sum += count
	}
	return sum
}

// String returns "3 get pods, 1 create events", or "none".
func (r requests) String() string {
	if len(r) == 0 {
		return "none"
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		all = append(all, fmt.Sprintf("%d %s", r[what], what))
	}
	return strings.Join(all, ", ")
}
