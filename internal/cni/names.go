// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits in bytes.
const (
	maxName   = 255  // of a container id or a network name: NAME_MAX, both become file names
	maxIfname = 15   // IFNAMSIZ without the terminating zero
	maxPath   = 4095 // PATH_MAX without the terminating zero
	maxSocket = 107  // sun_path of unix(7) without the terminating zero
)

// nameFault says why s cannot be a container id or a network name. The
// alphabet is that of the specification, section "Parameters"; it leaves no
// room for path traversal, for the slash of attach.Key or for the separators
// of a journal. "" means that nothing is wrong.
func nameFault(s string) string {
	switch {
	case s == "":
		return "missing"
	case len(s) > maxName:
		return "longer than 255 bytes"
	case !isAlphanumeric(s[0]):
		return "must begin with a letter or digit"
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isAlphanumeric(c) && c != '_' && c != '.' && c != '-' {
			return "may contain only letters, digits, '_', '.' and '-'"
		}
	}
	return ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// ifnameFault says why the kernel would not take s as an interface name, or
// would take it as something else. Beyond the specification: '%' makes the
// kernel choose a name itself ("eth%d"), byte 0xa0 is white space to it
// (lib/ctype.c), and "all" and "default" are taken in net.ipv4.conf
// (net/ipv4/devinet.c), so a device cannot have them.
func ifnameFault(s string) string {
	switch {
	case s == "":
		return "missing"
	case len(s) > maxIfname:
		return "longer than 15 bytes"
	case s == "." || s == ".." || s == "all" || s == "default":
		return "is a reserved name"
	case strings.ContainsAny(s, "/:%"):
		return "may not contain '/', ':' or '%'"
	case strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }):
		return "contains a character that is not ASCII"
	case !isField(s) || strings.IndexByte(s, 0xa0) >= 0:
		return "contains white space, a control character or invalid UTF-8"
	}
	return ""
}

// isField reports whether s can stand as one field of a line of text: valid
// UTF-8 without white space and control characters.
func isField(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// cleanPath validates a path from the configuration and returns it without
// redundant elements, so that one directory has one spelling. An empty one
// stays empty.
func cleanPath(key, s string) (string, *Error) {
	switch {
	case s == "":
		return "", nil
	case !path.IsAbs(s):
		return "", Errorf(CodeConfig, "%s %s: want an absolute path", key, quote(s))
	case len(s) > maxPath:
		return "", Errorf(CodeConfig, "%s %s: longer than %d bytes", key, quote(s), maxPath)
	case !isField(s):
		return "", Errorf(CodeConfig, "%s %s: contains white space, a control character or invalid UTF-8", key, quote(s))
	}
	return path.Clean(s), nil
}

// maxQuoted bounds what a message repeats of an offending value, in bytes.
const maxQuoted = 96

// quote makes any value presentable in a one-line message.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}
