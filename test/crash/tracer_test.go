// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// step is something that a traced process did: it passed a crash point, or it
// changed something that outlives it.
type step struct {
	point  string
	effect string
}

func (s step) String() string {
	if s.point != "" {
		return s.point
	}
	return "<" + s.effect + ">"
}

// tracer watches the system calls of one process and all its threads. It sees
// points as the writes to the trace file that they are in a build for tests.
type tracer struct {
	stateDir, trace string
	steps           []step
	begun           map[int]int // thread → step of the call that it is in
}

// run executes the command to its end. It must be called on a thread of its
// own, as Node.Do does: the kernel ties a tracer to its thread.
func (t *tracer) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer cmd.Wait() // closes what Start opened; the process is waited for below
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return err
	}
	for {
		tid, err := unix.Wait4(-pid, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for the traced process: %w", err)
		case tid == pid && (ws.Exited() || ws.Signaled()):
			if ws.ExitStatus() != 0 {
				return fmt.Errorf("the traced process ended with %d, signal %d", ws.ExitStatus(), ws.Signal())
			}
			return nil
		case !ws.Stopped():
			continue // a thread ended
		}
		t.resume(tid, ws)
	}
}

// resume looks at why a thread stopped and lets it go on. A thread may have
// been killed by the exit of another meanwhile; then there is nothing to do.
func (t *tracer) resume(tid int, ws unix.WaitStatus) {
	signal := 0
	switch sig := ws.StopSignal(); sig {
	case unix.SIGTRAP | 0x80:
		t.syscall(tid)
	case unix.SIGTRAP, unix.SIGSTOP: // a new thread, from both sides
	default:
		signal = int(sig)
	}
	_ = unix.PtraceSyscall(tid, signal)
}

// syscallInfo is struct ptrace_syscall_info of Linux 5.3.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	arch   uint32
	ip, sp uint64
	nr     uint64 // on exit: the result
	args   [6]uint64
	_      uint64
}

const (
	syscallEntry = 1
	syscallExit  = 2
)

// restarts reports whether a call did nothing and will be made again by the
// kernel (ERESTARTSYS to ERESTART_RESTARTBLOCK). Writing some sysctls does so
// for as long as another process holds the lock of the network configuration.
func (i syscallInfo) restarts() bool {
	result := int64(i.nr)
	return i.op == syscallExit && -516 <= result && result <= -512
}

func (t *tracer) syscall(tid int) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return
	}
	if at, ok := t.begun[tid]; ok && info.restarts() {
		t.steps[at] = step{}
	}
	delete(t.begun, tid)
	if info.op != syscallEntry {
		return
	}
	if s := t.judge(tid, info.nr, info.args); s != (step{}) {
		t.begun[tid] = len(t.steps)
		t.steps = append(t.steps, s)
	}
}

// done returns the steps, without those that were made again.
func (t *tracer) done() []step {
	return slices.DeleteFunc(t.steps, func(s step) bool { return s == step{} })
}

// judge says what a system call means.
func (t *tracer) judge(tid int, nr uint64, a [6]uint64) step {
	switch nr {
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		return t.write(tid, fileOf(tid, a[0]), a[1], a[2])
	case unix.SYS_FTRUNCATE:
		if file := fileOf(tid, a[0]); t.isJournal(file) {
			return step{effect: "truncate " + filepath.Base(file)}
		}
	case unix.SYS_SENDTO:
		if isNetlink(tid, a[4]) {
			return netlinkStep(memory(tid, a[1], a[2]))
		}
	case unix.SYS_SENDMSG:
		header := memory(tid, a[1], 56) // struct msghdr on 64 bits
		if header == nil || !isNetlink(tid, binary.NativeEndian.Uint64(header)) {
			break
		}
		vec := memory(tid, binary.NativeEndian.Uint64(header[16:]), 16)
		if vec != nil {
			return netlinkStep(memory(tid, binary.NativeEndian.Uint64(vec), binary.NativeEndian.Uint64(vec[8:])))
		}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return t.path("rename", text(tid, a[1]))
	case unix.SYS_UNLINKAT:
		return t.path("remove", text(tid, a[1]))
	}
	return step{}
}

func (t *tracer) write(tid int, file string, addr, size uint64) step {
	switch {
	case file == t.trace:
		return step{point: strings.TrimSpace(string(memory(tid, addr, size)))}
	case t.isJournal(file):
		return step{effect: "write " + filepath.Base(file)}
	case strings.HasPrefix(file, "/proc/sys/"):
		return step{effect: "write " + file}
	}
	return step{}
}

func (t *tracer) isJournal(file string) bool {
	return strings.HasPrefix(file, filepath.Join(t.stateDir, "journal."))
}

func (t *tracer) path(what, file string) step {
	if !t.isJournal(file) {
		return step{}
	}
	return step{effect: what + " " + filepath.Base(file)}
}

// netlinkStep tells requests that change something from those that ask: of
// rtnetlink by the number of the request (GET is the third of each four), of
// nftables because changes travel in a batch, which begins with one.
func netlinkStep(datagram []byte) step {
	for len(datagram) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(datagram))
		kind := binary.NativeEndian.Uint16(datagram[4:])
		if kind >= unix.NLMSG_MIN_TYPE && kind < 0x100 && (kind-unix.NLMSG_MIN_TYPE)&3 != 2 {
			return step{effect: fmt.Sprintf("netlink request %d, %d bytes", kind, len(datagram))}
		}
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			break
		}
		datagram = datagram[min((length+3)&^3, len(datagram)):]
	}
	return step{}
}

func isNetlink(tid int, sockaddr uint64) bool {
	family := memory(tid, sockaddr, 2)
	return family != nil && binary.NativeEndian.Uint16(family) == unix.AF_NETLINK
}

// fileOf returns the path of a descriptor, "" if there is none.
func fileOf(tid int, fd uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return ""
	}
	return path
}

// memory reads from the traced process; nil if it cannot be read.
func memory(tid int, addr, size uint64) []byte {
	if addr == 0 || size == 0 || size > 1<<20 {
		return nil
	}
	buf := make([]byte, size)
	local := []unix.Iovec{{Base: &buf[0], Len: size}}
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: int(size)}}, 0)
	if err != nil || uint64(n) != size {
		return nil
	}
	return buf
}

// text reads a path: up to the zero byte, or to the end of the page.
func text(tid int, addr uint64) string {
	const page = 4096
	b := memory(tid, addr, page-addr%page)
	before, _, found := bytes.Cut(b, []byte{0})
	if !found {
		more, _, _ := bytes.Cut(memory(tid, addr+page-addr%page, page), []byte{0})
		before = append(before, more...)
	}
	return string(before)
}
