// Command trytest shows the console on the scripted engine, to look at it by
// hand: go run ./tui/internal/trytest [-speed 20] [-plain]; with -serve DIR it serves
// several for falcon console --all. It is a tool for
// developers and part of no shipped binary.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/plain"
)

func main() {
	speed := flag.Int("speed", 5, "iterations a second")
	lines := flag.Bool("plain", false, "plain stream instead of the screen")
	dp := flag.Int("dp", 4, "data-parallel replicas")
	pp := flag.Int("pp", 2, "pipeline stages")
	tp := flag.Int("tp", 1, "tensor parallelism")
	role := flag.String("role", "approver", "role of the operator")
	theme := flag.String("theme", "", "theme")
	ascii := flag.Bool("ascii", false, "ASCII only")
	hint := flag.Bool("hint", false, "show the hint of the first start")
	skip := flag.Int("skip", 30, "iterations before the screen opens")
	second := flag.Bool("second", false, "a second incident while the first is open")
	serve := flag.String("serve", "",
		"serve several scripted engines on sockets in this folder, and show nothing")
	jobs := flag.Int("jobs", 8, "how many, with -serve")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *serve != "" {
		if err := serveJobs(ctx, *serve, *jobs, *speed); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	e := enginetest.New(enginetest.Options{
		TP:     *tp,
		DP:     *dp,
		PP:     *pp,
		Role:   *role,
		Second: *second,
	})
	e.Advance(*skip)
	srv := e.ServeInMemory()
	defer srv.Close()
	go drive(ctx, e, *speed)
	if err := show(ctx, srv, *lines, tui.Options{Theme: *theme, ASCII: *ascii, Hint: *hint}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// drive moves the job until ctx ends; the process ends right after.
func drive(ctx context.Context, e *enginetest.Engine, speed int) {
	t := time.NewTicker(time.Second / time.Duration(max(1, speed)))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			e.Advance(1)
		}
	}
}

func show(ctx context.Context, srv *enginetest.Server, lines bool, opts tui.Options) error {
	cc, err := srv.Dial()
	if err != nil {
		return err
	}
	defer cc.Close()
	client := falconv1.NewConsoleClient(cc)
	if lines {
		return plain.Run(ctx, client, os.Stdout, plain.Options{In: os.Stdin})
	}
	f := feed.New(client, nil)
	defer f.Close()
	return tui.Run(ctx, f, tui.Terminal{In: os.Stdin, Out: os.Stdout}, opts)
}
