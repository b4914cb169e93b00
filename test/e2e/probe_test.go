// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/test/cluster"
)

// dial has a server pod ask another one: protocol is "http" or "udp", request
// "hostname" or (http) "clientip". target is an address or a name.
func (s *suite) dial(ctx context.Context, from *corev1.Pod, protocol, target string, port int, request string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	query := url.Values{"host": {target}, "port": {fmt.Sprint(port)}, "protocol": {protocol}, "request": {request}, "tries": {"1"}}
	raw, err := s.host(from).Get(ctx, "http://"+netip.AddrPortFrom(addressesOf(from)[0], 8080).String()+"/dial?"+query.Encode())
	if err != nil {
		return "", fmt.Errorf("ask pod %s to dial: %w", from.Name, err)
	}
	var answer struct{ Responses, Errors []string }
	if err := json.Unmarshal([]byte(raw), &answer); err != nil {
		return "", fmt.Errorf("decode what pod %s says: %w: %q", from.Name, err, raw)
	}
	if len(answer.Responses) == 0 {
		return "", fmt.Errorf("%s from pod %s to %s port %d: %s", protocol, from.Name, target, port, strings.Join(answer.Errors, "; "))
	}
	return answer.Responses[0], nil
}

// expect is dial for an answer that is known.
func (s *suite) expect(ctx context.Context, from *corev1.Pod, protocol, target string, port int, request, want string) error {
	got, err := s.dial(ctx, from, protocol, target, port, request)
	if err == nil && got != want {
		err = fmt.Errorf("%s from pod %s to %s port %d: expected the answer %q, found %q", protocol, from.Name, target, port, want, got)
	}
	return err
}

// seesSource has one pod ask another for the address that it sees, which must
// be the pod's own of that family.
func (s *suite) seesSource(ctx context.Context, from *corev1.Pod, to, own netip.Addr) error {
	got, err := s.dial(ctx, from, "http", to.String(), 8080, "clientip")
	if err != nil {
		return err
	}
	if seen, err := netip.ParseAddrPort(got); err != nil || seen.Addr().Unmap() != own {
		return fmt.Errorf("from pod %s to %s: the server sees %q, want the pod's address %s", from.Name, to, got, own)
	}
	return nil
}

// askHTTP asks from a node's network.
func askHTTP(ctx context.Context, n *cluster.Node, target netip.AddrPort, request string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := n.Get(ctx, "http://"+target.String()+"/"+request)
	if err != nil {
		return "", fmt.Errorf("from %s: %w", n.Name, err)
	}
	return answer, nil
}

// askUDP sends a request from a node's network.
func askUDP(n *cluster.Node, target netip.AddrPort, request string) (string, error) {
	var answer string
	err := n.Enter(func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		got, err := conn.Read(buf)
		answer = string(buf[:got])
		return err
	})
	if err != nil {
		return "", fmt.Errorf("UDP from %s to %s: %w", n.Name, target, err)
	}
	return answer, nil
}

// answers checks an answer.
func answers(want string) func(got string, err error) error {
	return func(got string, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("expected the answer %q, found %q", want, got)
		}
		return err
	}
}
