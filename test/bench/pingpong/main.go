// SPDX-License-Identifier: Apache-2.0

// Command pingpong sends one byte over TCP and waits for it to come back, again
// and again.
//
//	pingpong serve ADDRESS:PORT
//	pingpong call ADDRESS:PORT DURATION
//
// The caller prints how many times per second the byte came back.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "call":
		err = call(os.Args[2], os.Args[3])
	default:
		err = errors.New("want serve ADDRESS:PORT, or call ADDRESS:PORT DURATION")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

// serve answers one caller after the other, until it is killed.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		line, err := newLine(c)
		if err != nil {
			return err
		}
		for line.get() == nil && line.put() == nil {
		}
		line.Close()
	}
}

func call(address, duration string) error {
	limit, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	line, err := newLine(c)
	if err != nil {
		return err
	}
	defer line.Close()
	start, count := time.Now(), 0
	for time.Since(start) < limit {
		if err := errors.Join(line.put(), line.get()); err != nil {
			return err
		}
		count++
	}
	fmt.Println(float64(count) / time.Since(start).Seconds())
	return nil
}

// line is a connection whose calls block in the kernel and nowhere else: the
// scheduler of Go, which would wake other threads on the same core, is not told.
type line struct {
	*os.File
	fd uintptr
}

func newLine(c net.Conn) (line, error) {
	f, err := c.(*net.TCPConn).File() // Go sets TCP_NODELAY on every connection
	if err := errors.Join(err, c.Close()); err != nil {
		return line{}, err
	}
	return line{f, f.Fd()}, nil // Fd makes it blocking
}

func (l line) get() error { return l.move(syscall.SYS_READ) }
func (l line) put() error { return l.move(syscall.SYS_WRITE) }

func (l line) move(call uintptr) error {
	var b byte
	n, _, errno := syscall.RawSyscall(call, l.fd, uintptr(unsafe.Pointer(&b)), 1)
	switch {
	case errno != 0:
		return errno
	case n == 0:
		return errors.New("the other end hung up")
	}
	return nil
}
