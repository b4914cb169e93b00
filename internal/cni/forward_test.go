// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseForwarding(t *testing.T) {
	got, ok := ParseForwarding([]byte(`{"name":"n","socket":"/run//x.sock","timeout":5,"logFile":"/l","ipam":null,"other":[1]}`))
	if want := (Forwarding{Socket: "/run/x.sock", Timeout: 5 * time.Second, LogFile: "/l"}); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, stdin := range []string{
		``, `{`, `[]`, `{}`, `{"socket":7}`, `{"socket":"relative"}`, `{"socket":"/a","timeout":0}`, `{"socket":"/a","logFile":"b"}`,
		`{"socket":"/a","ipam":{"type":"weft-ipam"}}`,
	} {
		if got, ok := ParseForwarding([]byte(stdin)); ok {
			t.Errorf("%s: %+v", stdin, got)
		}
	}
}

// Whatever is forwarded goes where the whole configuration says.
func TestForwardingAgreesWithTheConfiguration(t *testing.T) {
	part := func(t *rapid.T, key string, values ...string) string {
		v := rapid.SampledFrom(values).Draw(t, key)
		if v == "" {
			return ""
		}
		return `,"` + key + `":` + v
	}
	rapid.Check(t, func(t *rapid.T) {
		stdin := []byte(`{"cniVersion":"1.1.0","name":"n","type":"weft-cni"` +
			part(t, "socket", "", `"/a/b"`, `"/a/../c"`, `"x"`, `1`) +
			part(t, "timeout", "", "1", "600", "601", `"2"`) +
			part(t, "logFile", "", `"/log"`, `"log"`) +
			part(t, "ipam", "", "null", `{"type":"weft-ipam","ranges":[[{"subnet":"10.0.0.0/24"}]]}`) + "}")
		got, ok := ParseForwarding(stdin)
		cfg, err := ParseConfig(Call{Command: Add, ContainerID: "c", Netns: "/n", Ifname: "eth0", Stdin: stdin})
		switch {
		case ok && (err != nil || !cfg.Thick() || cfg.Forwarding() != got):
			t.Fatalf("%s is forwarded as %+v, but the configuration is %+v, %v", stdin, got, cfg, err)
		case !ok && err == nil && cfg.Thick():
			t.Fatalf("%s is not forwarded", stdin)
		}
	})
}
