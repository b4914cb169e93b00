// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/crash"
)

// Call sends one request to the agent at socket and waits for the answer,
// until the deadline at the latest. netns is passed along as a descriptor; -1
// passes none. The error wraps one of ErrNoAgent, ErrNoAnswer and ErrDeadline
// where one of them is the reason.
func Call(socket string, r Request, netns int, deadline time.Time) (Response, error) {
	r.Version = Version
	r.Deadline = monotonic() + int64(time.Until(deadline))
	raw, err := json.Marshal(r)
	if err != nil {
		return Response{}, err
	}
	crash.Point("wire-connect:before")
	fd, err := connect(socket, deadline)
	if err != nil {
		return Response{}, fmt.Errorf("call the agent at %s: %w", socket, err)
	}
	defer unix.Close(fd)
	crash.Point("wire-connect:after")
	if err := send(fd, raw, netns); err != nil {
		return Response{}, fmt.Errorf("call the agent at %s: %w", socket, classify(err))
	}
	crash.Point("wire-send:after")
	answer, err := receive(fd, deadline)
	if err != nil {
		return Response{}, fmt.Errorf("wait for the agent at %s: %w", socket, err)
	}
	crash.Point("wire-receive:after")
	var resp Response
	if err := json.Unmarshal(answer, &resp); err != nil {
		return Response{}, fmt.Errorf("decode the agent's answer: %w: %w", err, ErrNoAnswer)
	}
	return resp, nil
}

func connect(socket string, deadline time.Time) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// The send time-out also bounds connect, which waits while the agent's
	// backlog is full (unix(7)).
	if err = setTimeout(fd, unix.SO_SNDTIMEO, deadline); err == nil {
		err = retry(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: socket}) })
	}
	if err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return -1, fmt.Errorf("%w: %w", ErrNoAgent, err)
		}
		return -1, classify(err)
	}
	return fd, nil
}

// send writes the message, with the namespace on its first byte, and closes
// that direction: the end of the stream is the end of the message.
func send(fd int, raw []byte, netns int) error {
	var rights []byte
	if netns >= 0 {
		rights = unix.UnixRights(netns)
	}
	for len(raw) > 0 {
		var n int
		err := retry(func() (err error) {
			n, err = unix.SendmsgN(fd, raw, rights, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return err
		}
		raw, rights = raw[n:], nil
	}
	return unix.Shutdown(fd, unix.SHUT_WR)
}

func receive(fd int, deadline time.Time) ([]byte, error) {
	buf := make([]byte, 0, 8<<10)
	for {
		if err := setTimeout(fd, unix.SO_RCVTIMEO, deadline); err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		var n int
		err := retry(func() (err error) {
			n, err = unix.Read(fd, buf[len(buf):cap(buf)])
			return err
		})
		switch {
		case err != nil:
			return nil, classify(err)
		case n > 0 && len(buf)+n <= MaxAnswer:
			buf = buf[:len(buf)+n]
		case n > 0:
			return nil, fmt.Errorf("answer longer than %d bytes: %w", MaxAnswer, ErrNoAnswer)
		case len(buf) == 0:
			return nil, ErrNoAnswer
		default:
			return buf, nil
		}
	}
}

// setTimeout bounds the next system call on fd by what is left until deadline.
func setTimeout(fd, option int, deadline time.Time) error {
	left := time.Until(deadline)
	if left <= 0 {
		return ErrDeadline
	}
	tv := unix.NsecToTimeval(int64(left) + int64(time.Microsecond)) // 0 would mean for ever
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &tv)
}

func classify(err error) error {
	switch {
	case errors.Is(err, unix.EAGAIN):
		return ErrDeadline
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return err
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
