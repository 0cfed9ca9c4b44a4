package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/contexts"
	"github.com/failslow/falcon/tui/fleet"
)

// fleetPatience bounds how long --once waits for engines that do not answer.
const fleetPatience = 5 * time.Second

// errNoEngines is returned where there is nothing to show.
var errNoEngines = errors.New(
	"no engine is known: add one with falcon context add NAME ADDRESS, or start a lab with falcon lab run",
)

// wantsFleet reports whether several jobs are asked for.
func wantsFleet(all bool, target *engineTarget) bool {
	return all || strings.ContainsRune(target.context, ',')
}

// checkFleet returns what a console of several jobs can't do, or nil.
func checkFleet(all bool, target *engineTarget, config string, opts consoleOptions) error {
	name := "--context with several names"
	if all {
		name = "--all"
	}
	switch {
	case config != "":
		return fmt.Errorf("%w: --config starts an engine and %s shows those that run: give one of them",
			errUsage, name)
	case target.connect != "":
		return fmt.Errorf("%w: --connect names one engine and %s means several: give one of them",
			errUsage, name)
	case opts.Open != "" && (opts.Once || opts.Plain):
		return fmt.Errorf("%w: --open with lines is about one job: name it with --context NAME", errUsage)
	case opts.Record != "":
		return fmt.Errorf("%w: --record records one job: name it with --context NAME", errUsage)
	case all && target.context != "":
		return fmt.Errorf("%w: --all shows all contexts and --context some: give one of them", errUsage)
	}
	return nil
}

// openFleet opens a console of several jobs.
func openFleet(
	ctx context.Context,
	target *engineTarget,
	all bool,
	config string,
	opts consoleOptions,
) error {
	if err := checkFleet(all, target, config, opts); err != nil {
		return err
	}
	if done, err := guarded(hasScreen() && !opts.Plain && !opts.Once, "console", ""); done {
		return err
	}
	return consoleOfSeveral(ctx, target, all, opts)
}

// consoleOfSeveral shows all jobs, or those of the contexts named.
func consoleOfSeveral(ctx context.Context, target *engineTarget, all bool, opts consoleOptions) error {
	if err := checkTheme(opts.Theme); err != nil {
		return err
	}
	file, _, err := loadContexts()
	if err != nil {
		return err
	}
	chosen := file.Contexts
	discover := func() []fleet.Target { return targetsOf(enginesHere()) }
	if !all {
		names := strings.FieldsFunc(target.context, func(r rune) bool { return r == ',' })
		if chosen, err = file.Choose(names); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		discover = nil
	}
	f := fleet.New(targetsOf(chosen), discover, nil)
	defer f.Close()
	switch {
	case opts.Once:
		return fleetOnce(ctx, f, opts)
	case opts.Plain || !hasScreen():
		return f.Stream(ctx, opts.Out)
	}
	return fleetScreen(ctx, f, opts)
}

func targetsOf(list []contexts.Context) []fleet.Target {
	out := make([]fleet.Target, len(list))
	for i, x := range list {
		out[i] = fleet.Target{
			Name:    x.Name,
			Address: clean.String(x.Address),
			Dial:    func() (*grpc.ClientConn, error) { return dialContext(x) },
		}
	}
	return out
}

// fleetOnce writes how all jobs stand now, worst first.
func fleetOnce(ctx context.Context, f *fleet.Fleet, opts consoleOptions) error {
	jobs := f.Await(ctx, fleetPatience)
	if len(jobs) == 0 {
		return errNoEngines
	}
	now := time.Now()
	rows := (&fleet.Table{}).Rows(jobs, now)
	if opts.JSON {
		return fleet.WriteJSON(opts.Out, rows)
	}
	for i := range rows {
		if _, err := fmt.Fprintln(opts.Out, rows[i].Line(now)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(opts.Out, fleet.Summary(rows))
	return err
}

func fleetScreen(ctx context.Context, f *fleet.Fleet, opts consoleOptions) error {
	to, err := openTarget(opts.Open)
	if err != nil {
		return err
	}
	hint, seen := opts.firstStartHint()
	return tui.RunFleet(
		ctx,
		f,
		tui.Terminal{In: os.Stdin, Out: os.Stdout},
		screenOptions(opts, to, hint, seen),
	)
}
