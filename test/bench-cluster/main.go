// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// extent is how much is measured.
type extent struct {
	Quick bool

	Rounds, Pods int // pods that start at once, in every round
	Resident     int // pods of the node whose agent's memory is measured
	Nodes        int // other nodes, with a lease each
	Elsewhere    int // pods of theirs
}

func extentOf(quick bool) extent {
	if quick {
		return extent{Quick: true, Rounds: 2, Pods: 10, Resident: 20, Nodes: 10, Elsewhere: 500}
	}
	return extent{Rounds: 5, Pods: 60, Resident: 110, Nodes: 100, Elsewhere: 10_000}
}

func main() {
	quick := flag.Bool("quick", false, "few pods and rounds: to see that it works, not for numbers")
	file := flag.String("report", "", "write the results to this `file`, too")
	image := flag.String("image", "bin/weft-image.tar", "`archive` with Weft's image, as make image writes it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, extentOf(*quick), *image, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench-cluster:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, x extent, image, file string) error {
	debug.SetGCPercent(400) // this process shall not be in the clusters' way
	r := results{Extent: x, Began: time.Now(), Load: loadAverage()}
	if r.Load > busy {
		progress("the load average is %.2f: others use this machine, too, and the numbers will show it", r.Load)
	}
	if err := measure(ctx, image, &r); err != nil {
		return err
	}
	r.Took = time.Since(r.Began)
	r.writeLines(os.Stdout)
	if file == "" {
		return nil
	}
	var page bytes.Buffer
	r.writePage(&page)
	return os.WriteFile(file, page.Bytes(), 0o644)
}

// progress tells what is going on, on standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
