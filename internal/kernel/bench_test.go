// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"testing"
)

// BenchmarkAttach is one attachment of each kind; deleting it is not counted.
func BenchmarkAttach(b *testing.B) {
	for name, addrs := range families {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			p := w.newPod(addrs...)
			for b.Loop() {
				w.attach(p)
				b.StopTimer()
				if err := w.h.Detach(p.plan.HostIfname); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkDetach(b *testing.B) {
	w := newWorld(b)
	p := w.newPod("10.42.3.7")
	for b.Loop() {
		b.StopTimer()
		w.attach(p)
		b.StartTimer()
		if err := w.h.Detach(p.plan.HostIfname); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDetachAll100 deletes a hundred links in one call.
func BenchmarkDetachAll100(b *testing.B) {
	w := newWorld(b)
	var pods []*pod
	var names []string
	for i := range 100 {
		p := w.newPod(fmt.Sprintf("10.42.3.%d", i+1))
		pods, names = append(pods, p), append(names, p.plan.HostIfname)
	}
	for b.Loop() {
		b.StopTimer()
		for _, p := range pods {
			w.attach(p)
		}
		b.StartTimer()
		if err := w.h.DetachAll(names); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnsureNodeNoop is what every ADD pays for the node.
func BenchmarkEnsureNodeNoop(b *testing.B) {
	w := newWorld(b)
	w.ensure(testNode())
	for b.Loop() {
		w.ensure(testNode())
	}
}

func BenchmarkCompare(b *testing.B) {
	w := newWorld(b)
	p := w.attached("10.42.3.7", "fd00:42:3::7")
	for b.Loop() {
		w.noDifference(p)
	}
}
