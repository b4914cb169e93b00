// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
	"pgregory.net/rapid"
)

func TestVersionsAreThoseOfTheReferenceLibrary(t *testing.T) {
	if got, want := Versions(), version.All.SupportedVersions(); !slices.Equal(got, want) {
		t.Errorf("Versions() = %v; the library has %v", got, want)
	}
	if newestVersion != version.Current() {
		t.Errorf("newest is %s; the library has %s", newestVersion, version.Current())
	}
	for _, v := range Versions() {
		if !Supported(v) {
			t.Errorf("Supported(%q) is false", v)
		}
	}
	for _, v := range []string{"", "1.1", "1.1.0 ", "1.2.0", "01.1.0", "v1.0.0"} {
		if Supported(v) {
			t.Errorf("Supported(%q) is true", v)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for _, tt := range []struct {
		version, minimum string
		want             bool
	}{
		{"1.1.0", "1.1.0", true},
		{"1.0.0", "1.1.0", false},
		{"0.4.0", "0.4.0", true},
		{"0.3.1", "0.4.0", false},
		{"0.3.1", "0.3.0", true},
		{"1.10.0", "1.9.0", true},
		{"10.0.0", "9.9.9", true},
		{"1.1", "1.1.0", true},
		{"", "0.1.0", true},
		{"", "0.2.0", false},
		{"abc", "0.1.0", false},
		{"1.1.0.0", "0.1.0", false},
		{"1.-1.0", "0.1.0", false},
		{"1.1.0", "x", false},
		{"1..0", "0.1.0", false},
	} {
		if got := AtLeast(tt.version, tt.minimum); got != tt.want {
			t.Errorf("AtLeast(%q, %q) = %v", tt.version, tt.minimum, got)
		}
	}
}

func TestAtLeastAgreesWithTheReferenceLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}`)
		a, b := number.Draw(t, "version"), number.Draw(t, "minimum")
		want, err := version.GreaterThanOrEqualTo(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := AtLeast(a, b); got != want {
			t.Fatalf("AtLeast(%q, %q) = %v; the library says %v", a, b, got, want)
		}
	})
}

func TestVersionReply(t *testing.T) {
	const list = `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`
	for stdin, want := range map[string]string{
		`{"cniVersion":"0.4.0"}`:            `{"cniVersion":"0.4.0",`,
		`{"cniVersion":"1.1.0","name":"x"}`: `{"cniVersion":"1.1.0",`,
		`{}`:                                `{"cniVersion":"0.1.0",`,
		`{"cniVersion":"7.0.0"}`:            `{"cniVersion":"1.1.0",`,
		``:                                  `{"cniVersion":"1.1.0",`,
		`not json`:                          `{"cniVersion":"1.1.0",`,
		`{"cniVersion":5}`:                  `{"cniVersion":"1.1.0",`,
	} {
		got := VersionReply(VersionOf([]byte(stdin)))
		if string(got) != want+list {
			t.Errorf("stdin %q: got %s", stdin, got)
		}
		info, err := (&version.PluginDecoder{}).Decode(bytes.Clone(got))
		if err != nil {
			t.Fatalf("the reference library refuses %s: %v", got, err)
		}
		if !slices.Equal(info.SupportedVersions(), Versions()) {
			t.Errorf("the reference library reads %v", info.SupportedVersions())
		}
	}
}
