// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/view"
)

func TestTimelineAsTable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("elsewhere", 3600))
	tl := Timeline{
		Pod: "default/web-0", ContainerID: "0123456789abcdef", Verb: "ADD", Result: "no\naddress",
		Marks: []Mark{
			{Name: "created", At: at, Whole: true}, {Name: "scheduled", At: at.Add(time.Second), Whole: true},
			{Name: "received", At: at.Add(1200 * time.Millisecond)}, {Name: Answered, At: at.Add(1203*time.Millisecond + 456*time.Microsecond)},
		},
	}
	var out strings.Builder
	if err := view.Write(&out, view.Table, tl.Steps()); err != nil {
		t.Fatal(err)
	}
	const want = `POD            CONTAINER      VERB  STEP       AT               AFTER     RESULT
default/web-0  0123456789abc  ADD   created    02:04:05         -         -
default/web-0  0123456789abc  ADD   scheduled  02:04:06         about 1s  -
default/web-0  0123456789abc  ADD   received   02:04:06.200000  -         -
default/web-0  0123456789abc  ADD   answered   02:04:06.203456  3.46ms    no; address
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
