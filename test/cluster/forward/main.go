// SPDX-License-Identifier: Apache-2.0

// Command forward passes TCP connections on: what its standard input, a listening
// socket, accepts goes to the address that is its argument. Run in another
// network namespace than the one in which the socket was made, it connects the
// two, and ends with its own.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: forward ADDRESS:PORT <&LISTENING-SOCKET")
	}
	listener, err := net.FileListener(os.Stdin)
	if err != nil {
		return fmt.Errorf("use standard input as listening socket: %w", err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept connection: %w", err)
		}
		go pass(conn, os.Args[1])
	}
}

// pass copies in both directions until both have ended.
func pass(near net.Conn, address string) {
	far, err := net.Dial("tcp", address)
	if err != nil {
		_ = near.Close() // which says it to the client
		return
	}
	var both sync.WaitGroup
	both.Go(func() { half(far, near) })
	both.Go(func() { half(near, far) })
	both.Wait()
	// Nothing is left to send, so there is nothing to lose.
	_ = near.Close()
	_ = far.Close()
}

// half copies until the end, and passes the end on. An error ends the other
// direction, too.
func half(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if tcp, ok := to.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite() // closed already: the other side is gone
		return
	}
	_ = to.Close()
	_ = from.Close()
}
