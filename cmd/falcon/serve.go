package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"syscall"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var config string
	var example, check bool
	c := &cobra.Command{
		Use:     "serve",
		Short:   "Run the engine without a screen",
		Long:    "Run the engine without a screen. It keeps its journal, and serves agents and consoles until it is stopped.\n\nEvery key of falcon.yaml, with its default:\n\n" + engineExample,
		Example: "  falcon serve --config falcon.yaml\n  falcon serve --config falcon.yaml --check",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if example {
				_, err := io.WriteString(c.OutOrStdout(), engineExample)
				return err
			}
			cfg, err := loadEngineConfig(config)
			if err != nil {
				return err
			}
			if check {
				return writeFindings(c.OutOrStdout(), checkEngine(cfg))
			}
			return serveEngine(c, cfg)
		},
	}
	c.Flags().StringVar(
		&config,
		"config",
		"",
		"configuration file (YAML); default: everything in the state directory "+defaultStateDir(),
	)
	c.Flags().BoolVar(&example, "example", false,
		"write a configuration file with every key and its default, and end")
	c.Flags().BoolVar(&check, "check", false,
		"look at the configuration, folders, keys, certificates, lists and addresses, start nothing, and end")
	return c
}

// serveEngine runs until the engine fails or a signal asks for a stop.
func serveEngine(c *cobra.Command, cfg engineConfig) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	profiled, err := profileCPU(os.Getenv(profileVariable))
	if err != nil {
		return err
	}
	defer profiled()
	h, err := startEngine(ctx, cfg, loggerTo(c.ErrOrStderr()))
	if err != nil {
		return err
	}
	if h.Address != "" {
		fmt.Fprintln(c.OutOrStdout(), "listening on", h.Address)
	}
	if h.SSH != "" {
		fmt.Fprintln(c.OutOrStdout(), "ssh on", h.SSH)
	}
	fmt.Fprintln(c.OutOrStdout(), "socket", h.Socket)
	return h.Wait()
}

// gcPercent is how much the heap grows between two collections, where GOGC says nothing. Most of what
// an engine holds is small and stays, so that memory is dearer than the time that they take.
const gcPercent = 50

// profileVariable names a file for the profile of an engine's CPU time, for its developers; that of
// its heap is written beside it.
const profileVariable = "FALCON_CPUPROFILE"

// heapSuffix is that of the heap's profile.
const heapSuffix = ".heap"

// profileCPU profiles until the function that it returns is called; with no file it does nothing.
// The heap's profile is as of the last collection: that of the engine at work.
func profileCPU(file string) (end func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return nil, fmt.Errorf("can't write the profile that %s asks for: %w", profileVariable, err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
		if h, err := os.OpenFile(file+heapSuffix, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
			_ = pprof.Lookup("heap").WriteTo(h, 0)
			_ = h.Close()
		}
	}, nil
}

func loggerTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}
