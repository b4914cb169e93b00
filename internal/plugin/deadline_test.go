// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, unasked, ended := deadline(time.Minute), deadline(time.Minute), deadline(time.Minute)
		if at, ok := asked.Deadline(); !ok || time.Until(at) != time.Minute || asked.Err() != nil {
			t.Errorf("deadline %v, %v, error %v", at, ok, asked.Err())
		}
		ended.end()
		if err := ended.timed().Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("after end: %v", err)
		}
		<-asked.Done()
		for _, ctx := range []*lazyDeadline{asked, unasked} {
			if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after the deadline: %v", err)
			}
			ctx.end()
		}
	})
}
