// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// wantError fails unless err has the code and its message contains each part.
func wantError(t *testing.T, err *Error, code Code, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want code %d with %q", code, parts)
	}
	if err.Code != code {
		t.Errorf("code %d (%s); want %d", err.Code, err.Msg, code)
	}
	for _, part := range parts {
		if !strings.Contains(err.Msg, part) {
			t.Errorf("message %q does not contain %q", err.Msg, part)
		}
	}
	checkMessage(t, err)
}

// checkMessage holds for each error of this package: one line, and none of the
// phrases that make go-cni swallow a failed DEL.
func checkMessage(t *testing.T, err *Error) {
	t.Helper()
	if err.Msg == "" || strings.ContainsAny(err.Msg, "\n\r\x00") {
		t.Errorf("message %q: want exactly one line", err.Msg)
	}
	for _, phrase := range []string{"not found", "no such file or directory"} {
		if strings.Contains(err.Msg, phrase) {
			t.Errorf("message %q contains %q, by which go-cni ignores the error", err.Msg, phrase)
		}
	}
}

func wantNoError(t *testing.T, err *Error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error, code %d: %v", err.Code, err)
	}
}

// The reference library is the judge of numbers that are not ours to choose.
func TestCodesAgreeWithTheReferenceLibrary(t *testing.T) {
	for ours, theirs := range map[Code]uint{
		CodeVersion:          types.ErrIncompatibleCNIVersion,
		CodeUnsupportedField: types.ErrUnsupportedField,
		CodeUnknownContainer: types.ErrUnknownContainer,
		CodeEnvironment:      types.ErrInvalidEnvironmentVariables,
		CodeIO:               types.ErrIOFailure,
		CodeDecode:           types.ErrDecodingFailure,
		CodeConfig:           types.ErrInvalidNetworkConfig,
		CodeNetns:            types.ErrInvalidNetNS,
		CodeTryAgain:         types.ErrTryAgainLater,
		CodeUnavailable:      types.ErrPluginNotAvailable,
		CodeLimited:          types.ErrLimitedConnectivity,
	} {
		if uint(ours) != theirs {
			t.Errorf("code %d; the library has %d", ours, theirs)
		}
	}
	for _, own := range []Code{CodeExists, CodeDrift, CodeAddressInUse, CodeKernel, CodeDelegate, CodeInternal} {
		if own < 100 {
			t.Errorf("own code %d is in the range reserved by the specification", own)
		}
	}
}

func TestErrorEncode(t *testing.T) {
	for name, tt := range map[string]struct {
		err     *Error
		version string
		want    string
	}{
		"plain": {
			&Error{Code: CodeConfig, Msg: "mtu 3"}, "0.4.0",
			`{"cniVersion":"0.4.0","code":7,"msg":"mtu 3"}`,
		},
		"details": {
			&Error{Code: CodeTryAgain, Msg: "m", Details: "a\nb"}, "1.0.0",
			`{"cniVersion":"1.0.0","code":11,"msg":"m","details":"a\nb"}`,
		},
		"the cause is not encoded": {
			Errorf(CodeIO, "read: %w", fs.ErrClosed), "1.1.0",
			`{"cniVersion":"1.1.0","code":5,"msg":"read: file already closed"}`,
		},
		"request without readable version": {
			&Error{Code: CodeDecode, Msg: "m"}, "",
			`{"cniVersion":"1.1.0","code":6,"msg":"m"}`,
		},
		"request of a version that we do not speak": {
			&Error{Code: CodeVersion, Msg: "m"}, "9.0.0",
			`{"cniVersion":"1.1.0","code":1,"msg":"m"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.err.Encode(tt.version)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var theirs types.Error
			if err := json.Unmarshal(got, &theirs); err != nil {
				t.Fatal(err)
			}
			if theirs.Code != uint(tt.err.Code) || theirs.Msg != tt.err.Msg || theirs.Details != tt.err.Details {
				t.Errorf("the reference library reads %+v", theirs)
			}
		})
	}
}

func TestErrorf(t *testing.T) {
	plain := Errorf(CodeConfig, "mtu %d", 3)
	if plain.Msg != "mtu 3" || plain.Err != nil || plain.Unwrap() != nil {
		t.Errorf("without %%w: %+v; want no cause", plain)
	}
	one := Errorf(CodeIO, "read: %w", fs.ErrPermission)
	if !errors.Is(one, fs.ErrPermission) {
		t.Error("the wrapped error is lost")
	}
	two := Errorf(CodeIO, "%w and %w", fs.ErrPermission, fs.ErrClosed)
	if !errors.Is(two, fs.ErrPermission) || !errors.Is(two, fs.ErrClosed) {
		t.Error("one of two wrapped errors is lost")
	}
}

func TestErrorText(t *testing.T) {
	if got := (&Error{Msg: "m"}).Error(); got != "m" {
		t.Errorf("got %q", got)
	}
	if got := (&Error{Msg: "m", Details: "d"}).Error(); got != "m; d" {
		t.Errorf("got %q", got)
	}
}

func TestAsError(t *testing.T) {
	if AsError(nil) != nil {
		t.Error("nil became an error")
	}
	var none *Error
	if AsError(none) != nil {
		t.Error("a nil *Error in an interface became an error")
	}
	own := Errorf(CodeExists, "eth0 exists")
	if AsError(own) != own {
		t.Error("an *Error was not passed through")
	}
	wrapped := AsError(fmt.Errorf("attach: %w", own))
	if wrapped.Code != CodeExists || wrapped.Msg != "attach: eth0 exists" || !errors.Is(wrapped, own) {
		t.Errorf("wrapped: %+v", wrapped)
	}
	other := AsError(fs.ErrClosed)
	if other.Code != CodeInternal || other.Msg != "file already closed" || !errors.Is(other, fs.ErrClosed) {
		t.Errorf("foreign error: %+v", other)
	}
	joined := AsError(errors.Join(fs.ErrClosed, own))
	if joined.Code != CodeExists {
		t.Errorf("joined: code %d; want that of the only coded part", joined.Code)
	}
}

func TestDecodeErrorReadsWhatEncodeWrites(t *testing.T) {
	want := Error{Code: CodeTryAgain, Msg: "agent starts", Details: "a\nb"}
	for _, version := range Versions() {
		got, err := DecodeError(want.Encode(version))
		if err != nil || *got != want {
			t.Errorf("%s: got %+v, %v", version, got, err)
		}
	}
	for _, raw := range []string{``, `{`, `[]`, `{}`, `{"msg":"no code"}`, `{"code":"7"}`, `{"code":-1}`} {
		if got, err := DecodeError([]byte(raw)); err == nil {
			t.Errorf("%s is read as %+v", raw, got)
		}
	}
}
