// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"

	"sigs.k8s.io/yaml"
)

// documents cuts a stream of YAML documents (YAML 1.2, chapter 9) before a line
// that starts with "---" and after one that starts with "...": neither can be
// part of a document. Comments and directives stay with what follows them.
func documents(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		start, begun := 0, false // begun: there is more than comments since start
		for at := 0; at < len(data); {
			line, _, _ := bytes.Cut(data[at:], []byte("\n"))
			end := min(at+len(line)+1, len(data))
			switch {
			case isMarker(line, "---"):
				if begun {
					if !yield(data[start:at]) {
						return
					}
					start = at
				}
				begun = true
			case isMarker(line, "..."):
				if !yield(data[start:end]) {
					return
				}
				start, begun = end, false
			case len(bytes.TrimSpace(line)) > 0 && line[0] != '#' && line[0] != '%':
				begun = true
			}
			at = end
		}
		yield(data[start:])
	}
}

func isMarker(line []byte, marker string) bool {
	rest, is := bytes.CutPrefix(line, []byte(marker))
	return is && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r"), rest[0]) >= 0)
}

// toJSON returns nil if there is nothing in the document.
func toJSON(text []byte) ([]byte, error) {
	object := bytes.TrimSpace(text)
	if !json.Valid(object) {
		var err error
		if object, err = yaml.YAMLToJSONStrict(text); err != nil {
			return nil, err
		}
		object = bytes.TrimSpace(object)
	}
	if len(object) == 0 || string(object) == "null" {
		return nil, nil
	}
	if object[0] != '{' {
		return nil, errors.New("is not an object")
	}
	return object, nil
}
