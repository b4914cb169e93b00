// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Admin is the user that may do everything.
const Admin = "admin"

// startTimeout is long for a machine that does much else at the same time.
const startTimeout = 90 * time.Second

// Server is an API server with its etcd.
type Server struct {
	URL string
	// Log is the file that the API server writes its log to.
	Log string

	t       testing.TB
	dir     string
	etcdURL string
	port    string
	binary  string
	process *process
	http    *http.Client
}

// Start starts a server that ends with the test. users may log in besides
// Admin; what they may do is said by RBAC objects.
func Start(t testing.TB, users ...string) *Server {
	t.Helper()
	etcd, apiserver := Binary(t, "etcd", "etcd"), Binary(t, "kubernetes", "kube-apiserver")
	dir := t.TempDir()
	ports := freePorts(t, 3)
	s := &Server{
		URL: "https://127.0.0.1:" + ports[2], Log: filepath.Join(dir, "kube-apiserver.log"),
		t: t, dir: dir, port: ports[2], binary: apiserver, etcdURL: "http://127.0.0.1:" + ports[0],
		http: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it made its certificate itself, just now
		}},
	}
	s.writeFiles(users)
	peer := "http://127.0.0.1:" + ports[1]
	p, err := start(filepath.Join(dir, "etcd.log"), etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+s.etcdURL, "--advertise-client-urls="+s.etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--log-level=warn")
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(p.stop)
	s.wait("etcd", p, s.etcdURL+"/readyz", filepath.Join(dir, "etcd.log"))
	t.Cleanup(s.Stop)
	s.Start()
	return s
}

// Start starts the API server again after Stop, with the same state and URL.
// It returns when the server is ready.
func (s *Server) Start() {
	s.t.Helper()
	p, err := start(s.Log, s.binary, "--etcd-servers="+s.etcdURL, "--secure-port="+s.port,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--cert-dir="+s.file("certs"), "--token-auth-file="+s.file("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.file("sa.pem"),
		"--service-account-signing-key-file="+s.file("sa.pem"), "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount", "--shutdown-delay-duration=0s", "--profiling=false")
	if err != nil {
		s.t.Fatalf("start kube-apiserver: %v", err)
	}
	s.process = p
	s.wait("kube-apiserver", p, s.URL+"/readyz", s.Log)
}

// Stop kills the API server, as a crash would. etcd stays.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.stop()
		s.process = nil
	}
}

// wait returns when the URL answers 200.
func (s *Server) wait(name string, p *process, url, log string) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-p.done:
			s.t.Fatalf("%s has ended:\n%s", name, tail(log))
		case <-tick.C:
		}
		status, body, err := s.get(url)
		if err == nil && status == http.StatusOK {
			return
		}
		last = fmt.Sprintf("%d %s %v", status, body, err)
	}
	s.t.Fatalf("%s is not ready after %s: %s\n%s", name, startTimeout, last, tail(log))
}

func (s *Server) get(url string) (int, string, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+token(Admin))
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// writeFiles writes the users' tokens and the key of service accounts.
func (s *Server) writeFiles(users []string) {
	s.t.Helper()
	tokens := fmt.Sprintf("%s,%s,%s,system:masters\n", token(Admin), Admin, Admin)
	for _, user := range users {
		tokens += fmt.Sprintf("%s,%s,%s\n", token(user), user, user)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("tokens.csv", []byte(tokens))
	s.write("sa.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (s *Server) write(name string, content []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func token(user string) string { return "token-of-" + strings.ReplaceAll(user, ":", "-") }

// freePorts returns ports that nobody listens on; each is another.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// tail returns the end of a log, for the message of a test.
func tail(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	const most = 4000
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}
