// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"
)

// Resize follows the node's MTU, and leaves alone what was given another.
func TestResize(t *testing.T) {
	b := newBench(t)
	follows, own := b.request("follows"), b.request("own")
	own.Network.MTU = 1400
	for _, r := range []AddRequest{follows, own} {
		if _, err := b.Add(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	gone := b.attached("gone")
	b.end("gone", gone)
	mtu := func(container string) int { return b.kernel.links[key(container).HostIfname()].MTU }

	n, err := b.Resize(ctx, 1500, 1450)
	if err != nil || mtu("follows") != 1450 || mtu("own") != 1400 || n != 1 {
		t.Errorf("%d resized, %v; now %d and %d", n, err, mtu("follows"), mtu("own"))
	}
	if n, err := b.Resize(ctx, 1500, 1450); err != nil || n != 0 {
		t.Errorf("a second time: %d resized, %v", n, err)
	}
	// From the record, which does not know of the change, back again.
	b.kernel.fail = func(op string) failure {
		if op == "set-pod-mtu" {
			return failBefore
		}
		return succeed
	}
	if _, err := b.Resize(ctx, 1450, 1500); err == nil || !strings.Contains(err.Error(), key("follows").String()) {
		t.Errorf("error %v, want one that names the attachment", err)
	}
}
