// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

const sysctlRoot = "/proc/sys/"

var (
	errNotNetSysctl  = errors.New("only keys below net. belong to a network namespace")
	errUnknownSysctl = errors.New("this kernel, or this namespace, has no such key")
)

// writeSysctls sets the plan's parameters in the namespace of the calling
// thread: /proc/sys/net shows each thread its own namespace.
func writeSysctls(list []attach.Sysctl) error {
	for _, s := range list {
		if err := writeSysctl(s.Key, s.Value); err != nil {
			return err
		}
	}
	return nil
}

func writeSysctl(key, value string) error {
	path, err := sysctlPath(key)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(sysctlRoot+path, os.O_WRONLY, 0) // never O_CREATE
	if errors.Is(err, fs.ErrNotExist) {
		err = errUnknownSysctl
	}
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return &SysctlError{Key: key, Err: err}
	}
	return nil
}

func readSysctl(key string) (string, error) {
	path, err := sysctlPath(key)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(sysctlRoot + path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errUnknownSysctl
	}
	if err != nil {
		return "", &SysctlError{Key: key, Err: err}
	}
	return string(bytes.TrimSpace(b)), nil
}

// sysctlPath turns a key into a path below /proc/sys. As with sysctl(8), the
// first separator decides: in net.ipv4.conf.eth0/100.rp_filter slashes stand
// for the dots of a name, and net/ipv4/conf/eth0.100/rp_filter is a path as is.
func sysctlPath(key string) (string, error) {
	path := key
	if at := strings.IndexAny(key, "./"); at >= 0 && key[at] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	parts := strings.Split(path, "/")
	if parts[0] != "net" || len(parts) < 3 {
		// Anything else is not per network namespace: it would change the host.
		return "", &SysctlError{Key: key, Err: errNotNetSysctl}
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return "", &SysctlError{Key: key, Err: errors.New("not a key: an element is empty or dots alone")}
		}
	}
	return path, nil
}
