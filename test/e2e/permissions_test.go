// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// entry is a line of the API server's audit log, as far as tests read it.
type entry struct {
	Verb                     string
	User                     struct{ Username string }
	ObjectRef                struct{ Resource, Subresource, APIGroup, Namespace, Name string }
	RequestReceivedTimestamp time.Time
}

// audit reads the log.
func (s *suite) audit(t *testing.T) (all []entry) {
	t.Helper()
	file, err := os.Open(filepath.Join(s.LogDir(), "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Logf("a line that is no entry (the API server was killed while it wrote?): %.100q", lines.Text())
			continue
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// right is one verb on one resource.
type right struct{ group, resource, verb string }

// unexercised are rights that an agent needs, but not in these tests, and why.
var unexercised = func() map[right]string {
	m := map[right]string{}
	// An API server without streaming lists is asked for lists instead.
	for _, r := range [][2]string{
		{"", "nodes"}, {"", "namespaces"}, {"weft.dev", "ippools"}, {"weft.dev", "subnetleases"},
	} {
		m[right{r[0], r[1], "list"}] = "the API server streams lists"
	}
	m[right{"", "pods", "get"}] = "only for a pod that the watch has not brought when its sandbox starts"
	m[right{"weft.dev", "subnetleases", "get"}] = "only after a delete that met a newer version"
	return m
}()

// Whoever reviews what the agents may do sees a role with exactly what they need:
// all that they asked the API server for, in everything that happened above, was
// granted, and of what is granted there is nothing that they do not use.
func testPermissions(t *testing.T, s *suite) {
	used := map[right]int{}
	for _, e := range s.audit(t) {
		if e.User.Username != "system:serviceaccount:kube-system:weft" || e.ObjectRef.Resource == "" {
			continue
		}
		r := right{e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
		if e.ObjectRef.Subresource != "" {
			r.resource += "/" + e.ObjectRef.Subresource
		}
		// Also where it was forbidden: a server that has just started does not know
		// any role yet, and what is never granted is found below.
		used[r]++
	}
	role, err := s.Client().RbacV1().ClusterRoles().Get(t.Context(), "weft", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	granted := map[right]bool{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[right{group, resource, verb}] = true
				}
			}
		}
	}
	for r := range used {
		if !granted[r] {
			t.Errorf("the agents use %v, which the role does not grant", r)
		}
	}
	for r := range granted {
		if used[r] == 0 && unexercised[r] == "" && s.ran.Load() == s.all-1 {
			t.Errorf("the role grants %v, which nobody uses", r)
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(used), func(a, b right) int { return used[b] - used[a] }) {
		t.Logf("%6d %s %s %s", used[r], r.verb, r.resource, r.group)
	}
}
