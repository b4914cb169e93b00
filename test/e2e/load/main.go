// SPDX-License-Identifier: Apache-2.0

// Command load is traffic that notices the slightest interruption. As a server
// it sends back what comes over TCP. As a client it keeps connections open on
// which numbers go back and forth, and besides makes one short connection after
// the other; it says what went wrong so far to whoever asks by HTTP.
//
//	load server :7000
//	load client :7001 HOST:PORT...
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// patience is how long an answer may take. The kernel repeats what is lost
// within that time, so an interruption shows in Longest, not as an error.
const patience = 10 * time.Second

// Report is what a client tells.
type Report struct {
	Streams   int           // that are open
	Exchanges int           // numbers that came back, on all streams
	Requests  int           // connections made, used and closed
	Longest   time.Duration // that an answer took
	Errors    []string
}

type client struct {
	mu     sync.Mutex
	report Report
}

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if len(os.Args) < 3 {
		log.Fatal("usage: load server ADDRESS | load client ADDRESS HOST:PORT...")
	}
	switch os.Args[1] {
	case "server":
		log.Fatal(serve(os.Args[2]))
	case "client":
		c := &client{}
		for _, target := range os.Args[3:] {
			go c.stream(target)
			go c.requests(target)
		}
		http.HandleFunc("/", c.tell)
		log.Fatal(http.ListenAndServe(os.Args[2], nil))
	default:
		log.Fatalf("expected server or client, found %q", os.Args[1])
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, err := io.Copy(conn, conn)
			if err := errors.Join(err, conn.Close()); err != nil {
				log.Print(err)
			}
		}()
	}
}

// stream exchanges numbers on one connection, for ever.
func (c *client) stream(target string) {
	conn, err := net.DialTimeout("tcp", target, patience)
	if err != nil {
		c.fail(fmt.Errorf("open stream to %s: %w", target, err))
		return
	}
	c.count(func(r *Report) { r.Streams++ })
	for n := uint64(0); ; n++ {
		if err := c.exchange(conn, n); err != nil {
			c.count(func(r *Report) { r.Streams-- })
			c.fail(fmt.Errorf("exchange %d on the stream to %s: %w", n, target, errors.Join(err, conn.Close())))
			return
		}
		c.count(func(r *Report) { r.Exchanges++ })
		time.Sleep(2 * time.Millisecond) // a steady pace, not what the machine can do
	}
}

// requests makes one connection after the other, for ever.
func (c *client) requests(target string) {
	for n := uint64(0); ; n++ {
		conn, err := net.DialTimeout("tcp", target, patience)
		if err == nil {
			err = errors.Join(c.exchange(conn, n), conn.Close())
		}
		if err != nil {
			c.fail(fmt.Errorf("request %d to %s: %w", n, target, err))
		}
		c.count(func(r *Report) { r.Requests++ })
		time.Sleep(10 * time.Millisecond)
	}
}

// exchange sends a number and waits for it.
func (c *client) exchange(conn net.Conn, n uint64) error {
	start := time.Now()
	if err := conn.SetDeadline(start.Add(patience)); err != nil {
		return err
	}
	var out, in [8]byte
	binary.BigEndian.PutUint64(out[:], n)
	if _, err := conn.Write(out[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, in[:]); err != nil {
		return err
	}
	if in != out {
		return fmt.Errorf("expected %d, found %d", n, binary.BigEndian.Uint64(in[:]))
	}
	took := time.Since(start)
	c.count(func(r *Report) { r.Longest = max(r.Longest, took) })
	return nil
}

func (c *client) count(f func(*Report)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.report)
}

func (c *client) fail(err error) {
	log.Print(err)
	c.count(func(r *Report) {
		if len(r.Errors) < 100 {
			r.Errors = append(r.Errors, time.Now().Format(time.RFC3339Nano)+" "+err.Error())
		}
	})
}

func (c *client) tell(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := json.NewEncoder(w).Encode(c.report); err != nil {
		log.Print(err)
	}
}
