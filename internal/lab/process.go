// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// Deadlines of ending a process: the polite one, and the one after SIGKILL,
// which a process can only miss while it is stuck in the kernel.
const (
	termDeadline = 3 * time.Second
	killDeadline = 5 * time.Second
)

// readProcess returns the process of that id as it is now, and whether it
// lives: a process that is dead but not yet collected does not.
func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	st, err := parseStat(string(text))
	if err != nil || st.dead() {
		return process{}, false
	}
	return process{PID: pid, Start: st.Start}, true
}

func (p process) alive() bool {
	now, ok := readProcess(p.PID)
	return ok && now == p
}

// open returns a pidfd that is certain to be this process, or false where it
// is gone. A pidfd stays with its process, so comparing the start time once
// after opening excludes that another one is hit.
func (p process) open() (int, bool, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, false, nil
	case err != nil:
		return -1, false, fmt.Errorf("open process %d: %w", p.PID, err)
	case !p.alive():
		unix.Close(fd)
		return -1, false, nil
	}
	return fd, true, nil
}

// attempt is a signal and how long it may take until the process is gone.
type attempt struct {
	sig      unix.Signal
	deadline time.Duration
}

// stop ends the process politely: SIGTERM, and SIGKILL after termDeadline.
func (p process) stop() error {
	return p.end(attempt{unix.SIGTERM, termDeadline}, attempt{unix.SIGKILL, killDeadline})
}

// kill ends the process before it can do anything.
func (p process) kill() error { return p.end(attempt{unix.SIGKILL, killDeadline}) }

// end returns when the process is gone, at once where it already was.
func (p process) end(attempts ...attempt) error {
	fd, ok, err := p.open()
	if err != nil || !ok {
		return err
	}
	defer unix.Close(fd)
	for _, try := range attempts {
		if err := unix.PidfdSendSignal(fd, try.sig, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("signal process %d: %w", p.PID, err)
		}
		gone, err := waitExit(fd, try.deadline)
		if err != nil {
			return fmt.Errorf("wait for process %d: %w", p.PID, err)
		}
		if gone {
			p.collect()
			return nil
		}
	}
	return fmt.Errorf("stop process %d: it still runs %v after SIGKILL", p.PID, killDeadline)
}

// collect takes the exit status where the process is our own child, so that a
// program which holds a lab open for long gathers no zombies.
func (p process) collect() {
	_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
}

// waitExit reports whether the process of the pidfd ended within the time.
func waitExit(fd int, timeout time.Duration) (bool, error) {
	end := time.Now().Add(timeout)
	for {
		left := max(time.Until(end), 0)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0, err
	}
}

// processesIn returns the living processes whose network namespace is one of
// these. The pinned namespaces exist only in the lab, so whatever runs in one
// was started by the lab, or by someone who went in by hand.
func processesIn(namespaces map[kernel.NetnsID]bool) ([]process, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, err := kernel.StatNetns(filepath.Join("/proc", e.Name(), "ns/net"))
		if err != nil || !namespaces[id] {
			continue // ended meanwhile, or none of ours
		}
		if p, ok := readProcess(pid); ok {
			found = append(found, p)
		}
	}
	return found, nil
}

// stopAllIn ends every process in the namespaces at these paths. It looks
// again until it finds none, because a process may have forked meanwhile.
func stopAllIn(paths ...string) error {
	own, err := kernel.StatNetns(threadNetns)
	if err != nil {
		return err
	}
	namespaces := map[kernel.NetnsID]bool{}
	for _, path := range paths {
		if id, err := kernel.StatNetns(path); err == nil && pinned(path) && id != own {
			namespaces[id] = true
		}
	}
	const rounds = 10 // a fork bomb must not keep us for ever
	for range rounds {
		found, err := processesIn(namespaces)
		if err != nil || len(found) == 0 {
			return err
		}
		if err := stopAll(found); err != nil {
			return err
		}
	}
	return fmt.Errorf("stop processes in %v: new ones appeared %d times", paths, rounds)
}

// stopAll stops the processes side by side: the deadline of one that ignores
// SIGTERM is not added to that of the next.
func stopAll(processes []process) error {
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
