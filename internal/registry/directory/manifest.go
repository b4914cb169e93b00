// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"weft.dev/weft/internal/registry"
)

// leases is the subdirectory of the leases.
const leases = "subnetleases"

// leaseFile returns the name of the file of a lease.
func leaseFile(name string) string { return leases + "/" + name + ".yaml" }

// isManifest reports whether a file of that name is read.
func isManifest(name string) bool {
	if strings.HasPrefix(path.Base(name), ".") {
		return false
	}
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Limits, against files that cost more than they are worth.
const (
	documentLimit = 10_000
	wrongLimit    = 10 // of what is said to be wrong with a file
)

// manifest is what a file holds.
type manifest struct {
	entries   []entry // one per key
	documents int     // of any kind
	wrong     []error // what cannot be rejected by name
	// torn: there is something of which one cannot tell what it is. It may be
	// half of an object, and others may be missing.
	torn bool
}

// entry is an object that a file names: a value, or the reason why not.
type entry struct {
	key   registry.Key
	value any
	err   error
}

// header is what every object has.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// parse reads a file of that name.
func parse(name string, data []byte) manifest {
	if !utf8.Valid(data) {
		return manifest{wrong: []error{errors.New("is not UTF-8 text")}, torn: true}
	}
	var m manifest
	number := 0
	for text := range documents(data) {
		if number++; number > documentLimit {
			m.refuse(fmt.Errorf("has too many documents; want at most %d", documentLimit))
			m.torn = true
			break
		}
		object, err := toJSON(text)
		if err == nil && object == nil {
			continue // nothing but comments
		}
		m.documents++
		if err != nil {
			m.garbage(err)
		} else {
			m.add(name, object, true)
		}
	}
	m.refuseRepeated()
	return m
}

// garbage is a document that is no object, or nobody knows which.
func (m *manifest) garbage(err error) {
	m.refuse(fmt.Errorf("document %d: %w", m.documents, err))
	m.torn = true
}

func (m *manifest) refuse(err error) {
	if len(m.wrong) < wrongLimit {
		m.wrong = append(m.wrong, err)
	}
}

// add takes an object in.
func (m *manifest) add(file string, object []byte, mayBeList bool) {
	var h header
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &h); err != nil {
		m.garbage(err)
		return
	}
	if h.APIVersion == "" || h.Kind == "" {
		m.garbage(errors.New("has no apiVersion or no kind"))
		return
	}
	if h.APIVersion == "v1" && h.Kind == "List" {
		m.addList(file, object, mayBeList)
		return
	}
	read := readers[h.APIVersion+" "+h.Kind]
	if read == nil {
		return // somebody else's
	}
	key, err := h.key()
	if err != nil {
		m.garbage(err)
		return
	}
	if want := leaseFile(key.Name); key.Kind == registry.SubnetLease && file != want {
		m.refuse(fmt.Errorf("%s belongs in the file %s, whose name is the claim", key, want))
		return
	}
	value, err := read(object)
	m.entries = append(m.entries, entry{key, value, err})
}

// key returns the object's key, if its name is one.
func (h *header) key() (registry.Key, error) {
	key := registry.Key{Kind: registry.Kind(h.Kind), Name: h.Metadata.Name}
	if wrong := validation.IsDNS1123Subdomain(key.Name); wrong != nil {
		return key, fmt.Errorf("%s with the name %q: %s", h.Kind, clip(key.Name), wrong[0])
	}
	if key.Kind != registry.Pod && key.Kind != registry.AddressClaim {
		return key, nil
	}
	namespace := cmp.Or(h.Metadata.Namespace, defaultNamespace)
	if wrong := validation.IsDNS1123Label(namespace); wrong != nil {
		return key, fmt.Errorf("%s in the namespace %q: %s", key, clip(namespace), wrong[0])
	}
	key.Name = namespace + "/" + key.Name
	return key, nil
}

func (m *manifest) addList(file string, object []byte, mayBeList bool) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if !mayBeList {
		m.refuse(fmt.Errorf("document %d: is a List in a List", m.documents))
		return
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &list); err != nil {
		m.garbage(err)
		return
	}
	for _, item := range list.Items {
		m.add(file, item, false)
	}
}

// refuseRepeated leaves the first of the entries with the same key.
func (m *manifest) refuseRepeated() {
	seen := make(map[registry.Key]bool, len(m.entries))
	once := m.entries[:0]
	for _, e := range m.entries {
		if seen[e.key] {
			m.refuse(fmt.Errorf("%s is here twice; the first is used", e.key))
			continue
		}
		seen[e.key] = true
		once = append(once, e)
	}
	m.entries = once
}

// clip keeps a text from filling a screen.
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
