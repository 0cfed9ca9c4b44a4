package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// withConsole plays the scenario under a console that owns the terminal. The
// console is a process of its own: when it is killed, the job goes on and the
// console comes back with its journal. Leaving it ends the lab.
func (r *labRun) withConsole(ctx context.Context, stop context.CancelFunc) error {
	saved, err := term.GetState(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	// The terminal's interrupt key belongs to the console.
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTTIN)
	left := make(chan error, 1)
	go func() {
		left <- r.keepConsole(ctx, func() {
			_ = term.Restore(int(os.Stdin.Fd()), saved)
		})
		stop()
	}()
	client, hangUp, err := r.dialEngine()
	if err != nil {
		return err
	}
	defer hangUp()
	err = awaitEngine(ctx, client)
	if err == nil {
		if r.opt.Hold {
			go r.releaseOnceDecided(ctx, client)
		}
		err = r.playScenario(ctx)
	}
	if ctx.Err() != nil {
		return <-left // the operator left: that is how a session ends
	}
	if err == nil && r.o.report != "" {
		err = r.finishReport(ctx, client)
	}
	// The job has ended; the operator may look on until they leave.
	return errors.Join(err, <-left)
}

// keepConsole runs `falcon console` in the foreground until the operator
// leaves; a console that was killed is started again.
func (r *labRun) keepConsole(ctx context.Context, restore func()) error {
	for {
		cmd, err := engineCommand(r.consoleArgs()...)
		if err != nil {
			return err
		}
		cmd.Stdin = os.Stdin
		cmd.Stdout = os.Stdout
		cmd.Stderr = os.Stderr
		if err := r.lab.Spawn(cmd, true); err != nil {
			return err
		}
		r.lab.SetEngine(cmd.Process.Pid, r.socket)
		err = waitOrStop(ctx, cmd)
		restore()
		if !killedBySignal(err) || ctx.Err() != nil {
			return err
		}
		_, _ = os.Stdout.WriteString(
			r.leaveText() + "console killed; the job goes on, starting the console again\r\n",
		)
		time.Sleep(engineRestart)
	}
}

// leaveText leaves the screen of a console that was killed, where it had one.
func (r *labRun) leaveText() string {
	if r.o.lines {
		return ""
	}
	return leaveScreen + "\r\n"
}

// waitOrStop waits for a process, and asks it to leave when ctx ends.
func waitOrStop(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	if !endsWithin(ended, settleWait) {
		_ = cmd.Process.Kill()
		<-ended
	}
	return nil
}

// killedBySignal reports whether a signal ended the process.
func killedBySignal(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

func (r *labRun) consoleArgs() []string {
	args := []string{"console", "--config", r.config}
	if r.o.theme != "" {
		args = append(args, "--theme", r.o.theme)
	}
	if r.o.prefs != "" {
		args = append(args, "--prefs", r.o.prefs)
	}
	if r.o.record != "" { // a console that comes back goes on with it
		args = append(args, "--record", r.o.record, "--record-on")
	}
	if r.o.ascii {
		args = append(args, "--ascii")
	}
	if r.o.reader.given {
		args = append(args, fmt.Sprintf("--screen-reader=%v", r.o.reader.on))
	}
	return args
}

// releaseOnceDecided lets the held faults run out once an action of any incident was decided.
func (r *labRun) releaseOnceDecided(ctx context.Context, client falconv1.ConsoleClient) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		reply, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
		if err == nil && slices.ContainsFunc(reply.GetLadders(), anyDecided) {
			lab.ReleaseFaults(r.lab)
			return
		}
	}
}

func anyDecided(l *falconv1.Ladder) bool {
	return slices.ContainsFunc(l.GetActions(), func(a *falconv1.Action) bool {
		return a.GetDecidedBy() != ""
	})
}
