// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Code is the "code" of the error object. 0 to 99 belong to the specification
// (section "Error"), 100 and above to the plugin.
type Code uint

// Codes of the specification. CodeNetns is in the reference library only.
const (
	CodeVersion          Code = 1  // cniVersion not supported, or too old for the verb
	CodeUnsupportedField Code = 2  // the message holds key and value
	CodeUnknownContainer Code = 3  // nothing to undo: the runtime need not call DEL
	CodeEnvironment      Code = 4  // the message names the variables
	CodeIO               Code = 5  // reading or writing failed
	CodeDecode           Code = 6  // not JSON, or JSON of another shape
	CodeConfig           Code = 7  // the configuration contradicts itself or the rules
	CodeNetns            Code = 8  // CNI_NETNS is not a network namespace, or is the plugin's own
	CodeTryAgain         Code = 11 // transient: the runtime should repeat the call
	CodeUnavailable      Code = 50 // STATUS: ADD cannot succeed now
	CodeLimited          Code = 51 // STATUS: as 50, and existing attachments suffer as well
)

// Codes of our own.
const (
	CodeExists       Code = 100 // the sandbox already has an interface of this name
	CodeDrift        Code = 101 // CHECK: reality differs from the result of ADD
	CodeAddressInUse Code = 102 // a requested address belongs to another attachment
	CodeKernel       Code = 103 // the kernel refused an operation
	CodeDelegate     Code = 104 // a delegated plugin failed without an error object of its own
	CodePortInUse    Code = 105 // a port of the host leads to another attachment
	CodeRefused      Code = 106 // the pod asks for something that it cannot have
	CodeInternal     Code = 110 // a defect in Weft: a recovered panic, an error nobody classified
)

// Error is a failure as the runtime sees it.
type Error struct {
	Code    Code
	Msg     string // one line, complete without Details
	Details string // optional, may have several lines
	Err     error  // the cause, for errors.Is and errors.As; not encoded
}

// Error returns the message and the details.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error from a format; %w wraps as in fmt.Errorf.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Msg: err.Error()}
	if wraps(err) {
		e.Err = err
	}
	return e
}

// wraps tells an error that holds another from one that is only text.
func wraps(err error) bool {
	switch err.(type) { //nolint:errorlint // about this very error, not those inside
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		return true
	}
	return false
}

// AsError turns any error into an *Error. An *Error keeps its code, also when
// context was wrapped around it; the message is then that of the whole chain.
// Any other error is CodeInternal: whoever knew better would have said so. nil
// stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // unwrapped, it needs no new message
		return e
	}
	var inner *Error
	if errors.As(err, &inner) && inner != nil {
		return &Error{Code: inner.Code, Msg: err.Error(), Err: err}
	}
	return &Error{Code: CodeInternal, Msg: err.Error(), Err: err}
}

// Encode returns the error object that goes to standard output. The version is
// that of the request; one that we do not speak, or none because the request
// could not be read, is replaced by the newest.
func (e *Error) Encode(version string) []byte {
	wire := struct {
		CNIVersion string `json:"cniVersion"`
		Code       Code   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details,omitempty"`
	}{replyVersion(version), e.Code, e.Msg, e.Details}
	out, err := json.Marshal(wire)
	if err != nil {
		panic("cni: strings and a number do not encode: " + err.Error())
	}
	return out
}
