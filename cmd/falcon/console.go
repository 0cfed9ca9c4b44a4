package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"google.golang.org/grpc"

	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/plain"
	"github.com/failslow/falcon/tui/prefs"
)

// consoleOptions say how a console is shown.
type consoleOptions struct {
	Plain    bool      // lines instead of a screen; also without a terminal
	Reader   bool      // lines for a screen reader
	Theme    string    // "" = by the terminal's background
	ASCII    bool      // draw with ASCII only
	QuitNote string    // what else ends with the console; asks before leaving
	Out      io.Writer // where plain lines go; nil = standard output
	In       io.Reader // where decisions are typed in plain mode; nil = standard input
	Once     bool      // the state now, and end
	JSON     bool      // with Once: as one JSON document
	Open     string    // what to show first: a link, or ""

	PrefsFile string      // "" = the usual place
	Prefs     prefs.Prefs // what it says; the zero value is what is shipped
	Record    string      // record the session to this file; "" = not
	Resume    bool        // go on with a recording that exists
	From      string      // what a recording says it shows

	reader readerOption // as the flag has it
}

// ownEngineNote is shown before leaving a console that carries the engine.
const ownEngineNote = "The engine runs inside this console and stops with it. Training goes on untouched, but nothing is watched until an engine starts again."

// labNote is the same for the console of a lab.
const labNote = "Leaving ends the lab: its training job, its agents and its engine. Nothing of it stays on this machine."

func consoleCommand() *cobra.Command {
	var opts consoleOptions
	var target engineTarget
	var config string
	var all bool
	c := &cobra.Command{
		Use:   "console",
		Short: "Watch a job, and decide on what Falcon proposes",
		Long: "Console runs the engine and its screen in one process. Where that engine already runs, as with falcon serve,\n" +
			"it is only its screen; with --connect or --context, that of an engine that runs elsewhere. Without --config it is also\n" +
			"the screen of a lab that runs here; where several do, it asks which.\n" +
			"With --all, or with several names for --context, it shows several jobs: a list, worst first, and each one's own console.\n" +
			"Without a terminal, or with TERM=dumb, it prints lines and ends when the job has finished.",
		Example: "  falcon console --config falcon.yaml\n  falcon console --connect unix:/run/falcon/falcon.sock\n  falcon console --once --json\n  falcon console --all",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := openTarget(opts.Open); err != nil {
				return err
			}
			if err := opts.usePrefs(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(
				c.Context(),
				os.Interrupt,
				syscall.SIGTERM,
				syscall.SIGHUP,
			)
			defer stop()
			opts.Out = c.OutOrStdout()
			if opts.JSON && !opts.Once {
				return fmt.Errorf("%w: --json writes the state once: give --once with it", errUsage)
			}
			if wantsFleet(all, &target) {
				return openFleet(ctx, &target, all, config, opts)
			}
			return openConsole(ctx, c.ErrOrStderr(), &target, config, opts)
		},
	}
	target.declareFlags(c)
	c.PersistentFlags().Lookup("connect").Usage = "only the screen: the engine's socket, or HOST:PORT with the three certificate flags (default $FALCON_SOCKET, without --config)"
	c.Flags().StringVar(
		&config,
		"config",
		"",
		"the engine's configuration file (YAML); default: everything in the state directory "+
			defaultStateDir(),
	)
	c.Flags().BoolVar(&all, "all", false,
		"all jobs: those of your contexts, and engines and labs that run on this machine")
	c.PersistentFlags().Lookup("context").Usage = "engine of this context, or those of several: NAME,NAME"
	consoleFlags(c, &opts)
	c.AddCommand(consoleKeys())
	return c
}

// openConsole opens the console of one job: of an engine that runs, or with one of its own.
func openConsole(
	ctx context.Context,
	warnings io.Writer,
	target *engineTarget,
	config string,
	opts consoleOptions,
) error {
	if config != "" && (target.connect != "" || target.context != "") {
		return fmt.Errorf(
			"%w: --config starts an engine, and --connect or --context uses another: give one of them",
			errUsage,
		)
	}
	if config == "" {
		if err := target.useContext(); err != nil {
			return err
		}
		target.connect = cmp.Or(target.connect, os.Getenv("FALCON_SOCKET"))
	}
	running, err := target.runningEngine(config)
	if err != nil {
		return err
	}
	if running != "" && !opts.Once {
		fmt.Fprintf(warnings, "falcon: an engine already runs at %s: this is its console\n",
			clean.String(running))
	}
	target.connect = cmp.Or(target.connect, running)
	ends := ""
	if target.connect == "" {
		ends = "the engine ran in it and has ended too, training goes on unwatched"
	}
	if done, err := guarded(hasScreen() && !opts.Plain && !opts.Once, "console", ends); done {
		return err
	}
	if opts.Once && target.connect == "" && config == "" {
		target.connect = target.engineAddress() // to look once starts no engine
	}
	if target.connect != "" {
		return connectConsole(ctx, target, opts)
	}
	return consoleWithEngine(ctx, config, opts)
}

// connectConsole shows an engine that runs elsewhere.
func connectConsole(ctx context.Context, target *engineTarget, opts consoleOptions) error {
	if err := checkTheme(opts.Theme); err != nil {
		return err
	}
	cc, err := target.dialTarget()
	if err != nil {
		return err
	}
	// To look once goes through the plain connection: the screen's gives up each
	// try after a second and tries again, which one call does not wait for.
	if isSocket(target.connect) && !opts.Once { // dial only checked that it is there
		_ = cc.Close()
		return runConsole(ctx, target.connect, opts)
	}
	defer cc.Close()
	return showConsole(ctx, cc, opts)
}

// consoleWithEngine carries the engine in the same process; its log goes to a
// file, as the screen is the console's.
func consoleWithEngine(ctx context.Context, config string, opts consoleOptions) error {
	if err := checkTheme(opts.Theme); err != nil {
		return err
	}
	cfg, err := loadEngineConfig(config)
	if err != nil {
		return err
	}
	if err := claimStateDir(cfg.StateDir); err != nil {
		return err
	}
	log, err := os.OpenFile(
		filepath.Join(cfg.StateDir, consoleLog),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600,
	)
	if err != nil {
		return err
	}
	defer log.Close()
	h, err := startEngine(ctx, cfg, loggerTo(log))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, h.stop)
	defer stop()
	go func() { // ends with the engine, which Close below waits for
		<-h.Ended()
		cancel()
	}()
	opts.QuitNote = ownEngineNote
	if lab.IsBelow() {
		opts.QuitNote = labNote
	}
	err = runConsole(ctx, h.Socket, opts)
	return errors.Join(err, h.Close())
}

// consoleFlags are shared with other commands that open the console.
func consoleFlags(c *cobra.Command, opts *consoleOptions) {
	f := c.Flags()
	f.BoolVar(&opts.Once, "once", false, "write the state now as lines, and end")
	f.BoolVar(&opts.JSON, "json", false, "with --once: one JSON document")
	f.BoolVar(&opts.Plain, "plain", false, "lines instead of a screen; used by itself without a terminal")
	opts.reader.declareFlag(f)
	f.StringVar(
		&opts.Theme,
		"theme",
		"",
		"one of "+strings.Join(themes.Names(), ", ")+" (default: by the terminal's background)",
	)
	f.BoolVar(&opts.ASCII, "ascii", false, "draw with ASCII characters only")
	prefsFlag(c, &opts.PrefsFile)
	f.StringVar(&opts.Open, "open", "",
		"show this first: a page's name, inc/INC-0001, rec/REC-0001, rank/12 or link/n1-n3, as Y copies it")
	f.StringVar(&opts.Record, "record", "",
		"record what the console receives to this file, for falcon replay")
	f.BoolVar(&opts.Resume, "record-on", false, "go on with a recording that exists")
}

func checkTheme(name string) error {
	if name == "" {
		return nil
	}
	if _, _, err := ownThemes().Load(name); err != nil {
		return fmt.Errorf("%w: --theme: %w", errUsage, err)
	}
	return nil
}

// ownThemes are the operator's themes over those that ship.
func ownThemes() themes.Library {
	return themes.Library{Dir: themes.Dir(os.Getenv)}
}

// runConsole shows the engine behind a socket until the operator leaves, ctx
// ends, or, as plain lines, the job has finished. The terminal is restored
// however it ends.
func runConsole(ctx context.Context, socket string, opts consoleOptions) error {
	cc, err := feed.Dial(socket)
	if errors.Is(err, feed.ErrAddress) {
		return fmt.Errorf("%w: --connect: %w", errUsage, err)
	}
	if err != nil {
		return err
	}
	defer cc.Close()
	return showConsole(ctx, cc, opts)
}

func showConsole(ctx context.Context, cc *grpc.ClientConn, opts consoleOptions) error {
	client := falconv1.NewConsoleClient(cc)
	out, in := opts.Out, opts.In
	if out == nil {
		out = os.Stdout
	}
	if in == nil && stdinReadable() {
		in = os.Stdin
	}
	to, err := openTarget(opts.Open)
	if err != nil {
		return err
	}
	switch {
	case opts.Once:
		return spoken(opts.Reader && !opts.JSON, out, func(out io.Writer) error {
			return plain.Once(ctx, client, out, opts.JSON, to)
		})
	case opts.Plain || !hasScreen():
		return recording(client, opts, func() error {
			return plain.Run(ctx, client, out, plain.Options{
				In:     in,
				Open:   to,
				Reader: opts.Reader,
			})
		})
	}
	f := feed.New(client, nil)
	defer f.Close()
	hint, seen := opts.firstStartHint()
	src, end, err := recorded(f, opts)
	if err != nil {
		return err
	}
	defer end(os.Stderr)
	recorder, _ := src.(tui.Recorder) // a tap, where one is wanted
	shape := screenOptions(opts, to, hint, seen)
	shape.Recorder = recorder
	shape.Recording = opts.Record
	return tui.Run(ctx, src, tui.Terminal{In: os.Stdin, Out: os.Stdout}, shape)
}

// screenOptions are a screen's, by flags and preferences.
func screenOptions(opts consoleOptions, to *link.Target, hint bool, seen func()) tui.Options {
	return tui.Options{
		Theme:    opts.Theme,
		ASCII:    opts.ASCII,
		QuitNote: opts.QuitNote,
		Keys:     opts.Prefs.Keys,
		Open:     to,
		Mute:     opts.Prefs.Keys != nil && !opts.Prefs.Bell,
		Silent:   opts.Prefs.Keys != nil && !opts.Prefs.Notify,
		Save:     saverBelow(defaultStateDir()),
		Themes:   ownThemes(),
		Price:    alertPrice(opts.Prefs),
		Zone:     opts.Prefs.Zone,
		Local:    time.Local,
		NoMouse:  opts.Prefs.Keys != nil && !opts.Prefs.Mouse,
		Hint:     hint,
		HintSeen: seen,
	}
}

// alertPrice is what a minor slowdown must have cost to ring, also where no preferences were read.
func alertPrice(p prefs.Prefs) float64 {
	if p.Keys == nil {
		return prefs.Default().Price
	}
	return p.Price
}

// stdinReadable reports whether standard input may be read: a terminal stops a process
// that reads from it in the background.
func stdinReadable() bool {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return true
	}
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && front == unix.Getpgrp()
}

// openTarget reads --open; nil where it says nothing.
func openTarget(text string) (*link.Target, error) {
	if text == "" {
		return nil, nil
	}
	to, err := link.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: --open: %w", errUsage, err)
	}
	return &to, nil
}

// hasScreen reports whether there is a terminal that can be drawn on.
func hasScreen() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) &&
		term.IsTerminal(int(os.Stdout.Fd())) &&
		os.Getenv("TERM") != "dumb"
}
