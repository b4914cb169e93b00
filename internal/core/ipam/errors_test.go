// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"reflect"
	"testing"
)

// The messages as an operator reads them.
func TestMessages(t *testing.T) {
	set := mustPool(t, Set{subnetRange("10.1.0.0/24")}).Sets[0]
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&InUseError{addr("10.1.0.9"), "net/a/eth0"}, "address 10.1.0.9 is used by net/a/eth0; request another one or delete that attachment first"},
		{&InUseError{addr("10.1.0.9"), ReservedElsewhere}, "address 10.1.0.9 is reserved elsewhere; request another one or remove the reservation"},
		{&NotInPoolError{addr("10.9.0.9"), Pool{[]Set{set}}}, "requested address 10.9.0.9 is in no range of the pool; request an address of 10.1.0.0/24 (10.1.0.1-10.1.0.254), or none"},
		{&WantError{addr("10.1.0.9"), addr("10.1.0.9"), nil}, "address 10.1.0.9 is requested twice; request it once"},
		{&WantError{addr("10.1.0.9"), addr("10.1.0.8"), set}, "addresses 10.1.0.9 and 10.1.0.8 are both requested from 10.1.0.0/24 (10.1.0.1-10.1.0.254), which gives one address to an attachment; request one of them"},
		{&ExhaustedError{Set: set, Total: 253, Used: 0}, "no free address in 10.1.0.0/24 (10.1.0.1-10.1.0.254): 0 of 253 used, 253 reserved elsewhere; delete attachments that are no longer needed, or give the network another range"},
		{&ExhaustedError{Set: set, Total: 9, Used: 9, ByOwnerGroup: []OwnerGroup{
			{"net", 4, "net/a/eth0"}, {"web", 3, "web/shop-1"}, {"db", 1, "db/pg-0"}, {"x", 1, "x"}}},
			"no free address in 10.1.0.0/24 (10.1.0.1-10.1.0.254): 9 of 9 used (4 by net, such as net/a/eth0; 3 by web, such as web/shop-1; 1 by db, such as db/pg-0 and 1 more groups); delete attachments that are no longer needed, or give the network another range"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestExhaustedSaysByWhom(t *testing.T) {
	u, p := NewUsage(), mustPool(t, Set{rng("10.1.0.0/28", "", "10.1.0.7", "", "")})
	for i, owner := range []string{"web/b", "net/x/eth0", "web/a", "db/1", "plain", "web/c"} {
		take(t, u, fmt.Sprintf("10.1.0.%d", i+2), owner)
	}
	take(t, u, "10.1.0.9", "web/outside")
	_, err := u.Allocate(p, Request{Owner: "new/pod"})
	want := &ExhaustedError{Set: p.Sets[0], Total: 6, Used: 6, ByOwnerGroup: []OwnerGroup{
		{"web", 3, "web/b"}, {"db", 1, "db/1"}, {"net", 1, "net/x/eth0"}, {"plain", 1, "plain"}}}
	if !reflect.DeepEqual(err, want) {
		t.Errorf("got %+v, want %+v", err, want)
	}
}
