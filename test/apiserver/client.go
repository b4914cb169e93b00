// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Kubeconfig writes a kubeconfig of that user (Admin, or one that Start was
// given) and returns its path.
func (s *Server) Kubeconfig(user string) string {
	s.t.Helper()
	name := "kubeconfig-" + strings.ReplaceAll(user, ":", "-")
	s.write(name, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, s.URL, s.file("certs/apiserver.crt"), token(user)))
	return s.file(name)
}

// Kubectl runs kubectl as Admin with some standard input, and returns what it
// says.
func (s *Server) Kubectl(stdin string, args ...string) (string, error) {
	s.t.Helper()
	cmd := exec.Command(Binary(s.t, "kubernetes", "kubectl"), append([]string{"--kubeconfig=" + s.Kubeconfig(Admin), "--cache-dir=" + s.file("kubectl")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// MustKubectl fails the test if kubectl fails.
func (s *Server) MustKubectl(stdin string, args ...string) string {
	s.t.Helper()
	out, err := s.Kubectl(stdin, args...)
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Apply creates or changes objects of a manifest.
func (s *Server) Apply(manifest string) {
	s.t.Helper()
	s.MustKubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

// ApplyCRDs installs the custom resource definitions in a directory and waits
// until they are in effect.
func (s *Server) ApplyCRDs(dir string) {
	s.t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if len(files) == 0 {
		s.t.Fatalf("there are no custom resource definitions in %s", dir)
	}
	s.MustKubectl("", "apply", "--server-side", "-f", dir)
	s.MustKubectl("", "wait", "--for=condition=Established", "--timeout=60s", "-f", dir)
}

// DeleteFromEtcd removes an object behind the API server's back, by its path
// below /registry, such as "weft.dev/ippools/default". It works while the API
// server is stopped.
func (s *Server) DeleteFromEtcd(path string) {
	s.t.Helper()
	var answer struct{ Deleted string }
	s.etcd("/v3/kv/deleterange", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte("/registry/" + path))}, &answer)
	if answer.Deleted != "1" {
		s.t.Fatalf("there is no /registry/%s in etcd", path)
	}
}

// Compact makes etcd forget what there was before now.
func (s *Server) Compact() {
	s.t.Helper()
	var answer struct{ Header struct{ Revision string } }
	s.etcd("/v3/kv/range", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte("x"))}, &answer)
	s.etcd("/v3/kv/compaction", map[string]any{"revision": answer.Header.Revision, "physical": true}, nil)
}

// etcd calls etcd's JSON gateway.
func (s *Server) etcd(path string, request, answer any) {
	s.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.http.Post(s.etcdURL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		s.t.Fatalf("etcd: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("etcd %s: %s", path, resp.Status)
	}
	if answer != nil {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			s.t.Fatalf("etcd %s: %v", path, err)
		}
	}
}

// Eventually waits until a condition holds; it fails the test with the
// condition's last words after a minute.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("after a minute: %v", err)
}

// Repository returns the path of a file of this repository.
func Repository(t testing.TB, path string) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil || strings.TrimSpace(string(out)) == os.DevNull {
		t.Fatalf("find the repository: %v", err)
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), path)
}
