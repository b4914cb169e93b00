// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/wire"
)

// server accepts calls on the agent's socket, each on a connection and a
// goroutine of its own. There is no limit and no queue: the kernel serializes
// the work anyway, and a call that waits in a queue looks like a hang.
type server struct {
	listener *net.UnixListener
	calls    sync.WaitGroup
}

// listen takes over the socket. A socket file that nobody listens on is left
// from an agent that died; one that answers belongs to a living process.
func listen(path string) (*server, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("socket %s: another process listens on it; stop it, or give this agent another socket", path)
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("socket %s: exists and is no socket (%s); remove it, or give this agent another socket", path, st.Mode())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("socket: remove the one that a dead agent left: %w", err)
		}
	}
	// The mode comes from the umask: a chmod afterwards would leave a moment
	// in which anybody could connect.
	old := syscall.Umask(0o177)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &server{listener: listener}, nil
}

// answerFunc answers a request; netns is the descriptor that came with it, or
// -1, and passes to the callee. after, if not nil, is called once the shim has
// its answer.
type answerFunc func(ctx context.Context, r wire.Request, netns int) (resp wire.Response, after func())

// serve accepts until ctx ends, then waits for the calls in flight.
func (s *server) serve(ctx context.Context, answer answerFunc) {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			s.calls.Wait()
			return
		case err != nil:
			// Out of descriptors or memory: others must finish first.
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		default:
			s.calls.Go(func() {
				converse(conn, answer)
				_ = conn.Close()
			})
		}
	}
}

// converse reads one request and writes one response. Stopping the agent does
// not cancel a call: it is done in milliseconds, or by its own deadline.
func converse(conn *net.UnixConn, answer answerFunc) {
	_ = conn.SetReadDeadline(time.Now().Add(readTimeout))
	raw, netns, err := receive(conn)
	if err != nil {
		closeFD(netns)
		return
	}
	r, err := wire.DecodeRequest(raw)
	if err != nil {
		closeFD(netns)
		respond(conn, failure(r, err))
		return
	}
	if r.Left() <= 0 {
		closeFD(netns)
		respond(conn, failure(r, errors.New("it came too late: the shim has given up")))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget(r.Left()))
	defer cancel()
	resp, after := answer(ctx, r, netns)
	respond(conn, resp)
	if after != nil {
		after()
	}
}

// budget is what the agent allows itself of the time that the shim waits: it
// must have undone and answered before the shim gives up.
func budget(shim time.Duration) time.Duration { return shim - min(shim/10, time.Second) }

// readTimeout bounds how long a request may take to arrive: the shim writes it
// at once.
const readTimeout = 5 * time.Second

func respond(conn *net.UnixConn, resp wire.Response) {
	resp.Version = wire.Version
	raw, err := json.Marshal(resp)
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(readTimeout))
	_, _ = conn.Write(raw) // a shim that has gone needs no answer
}

// receive reads to the end of the stream and takes the descriptor that may
// come with it.
func receive(conn *net.UnixConn) (raw []byte, netns int, err error) {
	netns = -1
	buf := make([]byte, 16<<10)
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
		if oobn > 0 {
			if fd := firstRight(oob[:oobn]); fd >= 0 {
				closeFD(netns)
				netns = fd
			}
		}
		raw = append(raw, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF) || (err == nil && n == 0):
			return raw, netns, nil
		case err != nil:
			return nil, netns, err
		case len(raw) > wire.MaxMessage:
			return nil, netns, fmt.Errorf("request longer than %d bytes", wire.MaxMessage)
		}
	}
}

// firstRight returns the first descriptor of a control message and closes the
// others.
func firstRight(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	first := -1
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if first < 0 {
				first = fd
				unix.CloseOnExec(fd)
			} else {
				closeFD(fd)
			}
		}
	}
	return first
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
