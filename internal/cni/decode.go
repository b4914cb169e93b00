// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// decode reads JSON into a wire type. what names the document in messages and
// prefix is the path of the document inside the configuration, with its dot.
func decode(what, prefix string, raw []byte, into any) *Error {
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if len(strings.TrimSpace(string(raw))) == 0 {
			return Errorf(CodeDecode, "decode %s: the input is empty; want a JSON object", what)
		}
		return Errorf(CodeDecode, "decode %s: malformed JSON at offset %d, near %s: %w",
			what, syntax.Offset, excerpt(raw, syntax.Offset), err)
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return Errorf(CodeDecode, "decode %s: %s: want %s, found %s at offset %d, near %s: %w",
			what, fieldPath(prefix, typ.Field), kindName(typ.Type), typ.Value, typ.Offset, excerpt(raw, typ.Offset), err)
	}
	return Errorf(CodeDecode, "decode %s: %w", what, err)
}

// isTypeError reports that only the type of some value was wrong: everything
// else has been decoded.
func isTypeError(e *Error) bool {
	var typ *json.UnmarshalTypeError
	return errors.As(e, &typ)
}

// fieldPath turns the path that encoding/json reports into that of the reader.
// encoding/json puts the name of an embedded struct into it; those begin with
// "wire" here and no key does.
func fieldPath(prefix, field string) string {
	var path []string
	for part := range strings.SplitSeq(field, ".") {
		if part != "" && !strings.HasPrefix(part, "wire") {
			path = append(path, part)
		}
	}
	full := prefix + strings.Join(path, ".")
	if full == "" {
		return "the whole document"
	}
	return strings.TrimSuffix(full, ".")
}

// kindName says in JSON's words what a Go type wants.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Uint:
		return "an integer"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return t.String()
}

// excerpt quotes the surroundings of a byte offset.
func excerpt(raw []byte, offset int64) string {
	const before, after = 24, 12
	from := max(0, min(offset, int64(len(raw)))-before)
	to := min(int64(len(raw)), max(0, offset)+after)
	return strconv.Quote(string(raw[from:to]))
}

// index names an element of a list.
func index(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }
