// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The diary tells what garbage collection did, whoever ran it: the agent, or
// any call of a thin plugin. It is for people; nothing is decided by it.
const (
	diaryName = "collected"
	diaryMost = 256 << 10 // bytes; then one older file is kept beside
	oldSuffix = ".old"
)

// Entry is one line of the diary.
type Entry struct {
	Time      time.Time `json:"time"`
	Key       string    `json:"attachment"`
	Addresses []string  `json:"addresses,omitempty"`
	Observed  string    `json:"observed"`
	Action    string    `json:"action"`
	Error     string    `json:"error,omitempty"`
}

// write appends findings to the diary. Losing them loses no fact, so a failure
// is not an error.
func (e *Engine) write(findings []Finding) {
	if len(findings) == 0 || e.Instance == "" {
		return
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	for _, f := range findings {
		entry := Entry{Time: e.Now().UTC(), Key: f.Key.String(), Addresses: f.Addresses, Observed: f.Observed, Action: f.Action}
		if f.Err != nil {
			entry.Error = f.Err.Error()
		}
		_ = enc.Encode(entry)
	}
	path := filepath.Join(e.Instance, diaryName)
	if st, err := os.Stat(path); err == nil && st.Size() > diaryMost {
		_ = os.Rename(path, path+oldSuffix)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(text.String())
	_ = f.Close()
}

// Diary returns what garbage collection did in a state directory, oldest
// first. A line that cannot be read is left out.
func Diary(stateDir string) ([]Entry, error) {
	var entries []Entry
	for _, name := range []string{diaryName + oldSuffix, diaryName} {
		raw, err := os.ReadFile(filepath.Join(stateDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return entries, err
		}
		for line := range strings.Lines(string(raw)) {
			var entry Entry
			if json.Unmarshal([]byte(line), &entry) == nil {
				entries = append(entries, entry)
			}
		}
	}
	return entries, nil
}

func texts(addrs []netip.Addr) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}
