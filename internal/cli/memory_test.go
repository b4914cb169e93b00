// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestHeapGrowth(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 100},
		{4 << 20, 100},
		{8 << 20, 75},
		{20 << 20, 30},
		{31 << 20, 20},
		{1 << 40, 20},
	} {
		if got := heapGrowth(c.live); got != c.want {
			t.Errorf("a heap of %d bytes may grow by %d %%, want %d", c.live, got, c.want)
		}
	}
}
