// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// startIn starts the command inside the namespace. A child inherits the
// namespace of the thread that forks it, and os/exec forks on the caller's.
func startIn(netns string, cmd *exec.Cmd) error {
	return inNetns(netns, cmd.Start)
}

// NoMachineError says that a lab has neither a pod nor a node of that name.
type NoMachineError struct {
	Lab, Name string
	Known     []string
}

func (e *NoMachineError) Error() string {
	return fmt.Sprintf("%q is nothing in lab %q: want one of %v", e.Name, e.Lab, e.Known)
}

// machine returns the path of the namespace of a pod, a node or the outside.
func (l *lab) machine(name string) (string, error) {
	known, err := listNetns(l.l)
	if err != nil {
		return "", err
	}
	for _, k := range known {
		if k == name {
			return l.l.netns(name), nil
		}
	}
	return "", &NoMachineError{Lab: l.spec.Name, Name: name, Known: known}
}

// Start starts the command in the namespace of a pod, a node or "outside" and
// does not wait for it. The name of the program is looked up as usual, in the
// machine's own file system.
func (h Host) Start(name, machine string, cmd *exec.Cmd) error {
	l, err := h.open(name, reading)
	if err != nil {
		return err
	}
	defer l.close()
	path, err := l.machine(machine)
	if err != nil {
		return err
	}
	if err := startIn(path, cmd); err != nil {
		return fmt.Errorf("run in %s: %w", machine, err)
	}
	return nil
}

// Replace turns the running program into argv inside the namespace of a pod, a
// node or "outside", so that terminal, signals and exit status are the
// command's own. It returns only where that is not possible.
func (h Host) Replace(name, machine string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("run in the lab: no command given")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("run in %s: %w", machine, err)
	}
	l, err := h.open(name, reading)
	if err != nil {
		return err
	}
	defer l.close() // execve drops the lock too: the descriptor is not inherited
	path, err := l.machine(machine)
	if err != nil {
		return err
	}
	return inNetns(path, func() error {
		// The thread that calls execve becomes the whole process and keeps its
		// namespace (execve(2), "Effect on threads").
		return fmt.Errorf("run %s in %s: %w", program, machine, unix.Exec(program, argv, os.Environ()))
	})
}
