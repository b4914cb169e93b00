// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// The first thread stays with main: any other may be thrown away after a
// change of namespace, and /proc/self would go on showing what it was left in.
func init() { runtime.LockOSThread() }

func main() {
	quick := flag.Bool("quick", false, "few rounds: to see that it works, not for numbers")
	file := flag.String("report", "", "write the results to this `file`, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p, inside := insidePlaces()
	var err error
	if inside {
		err = measureInside(ctx, p, extentOf(*quick))
	} else {
		err = measureOutside(ctx, *file)
	}
	if err != nil {
		// What the process inside had to say, it has said.
		if inside || !errors.As(err, new(*exec.ExitError)) || ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

func measureOutside(ctx context.Context, file string) error {
	page, err := outside(ctx)
	if err != nil || file == "" {
		return err
	}
	return os.WriteFile(file, page, 0o644)
}

// reportFD is where the parent reads the report.
const reportFD = 3

func measureInside(ctx context.Context, p places, x extent) error {
	if err := os.Unsetenv(insideEnv); err != nil {
		return err
	}
	debug.SetGCPercent(400) // this process shall not be in its own way
	done := make(chan error)
	var r results
	// Not on the first thread: it would have to wake up for each answer.
	go func() {
		var err error
		r, err = measureAll(ctx, p, x)
		done <- err
	}()
	if err := <-done; err != nil {
		return err
	}
	var page bytes.Buffer
	r.writeLines(os.Stdout)
	r.writePage(&page)
	pipe := os.NewFile(reportFD, "report")
	defer pipe.Close()
	_, err := pipe.Write(page.Bytes())
	return err
}
