package main

import (
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var config string
	var example bool
	c := &cobra.Command{
		Use:     "serve",
		Short:   "Run the engine without a screen",
		Long:    "Run the engine without a screen. It keeps its journal, and serves agents and consoles until it is stopped.\n\nEvery key of falcon.yaml, with its default:\n\n" + engineExample,
		Example: "  falcon serve --config falcon.yaml",
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
			return serveEngine(c, cfg)
		},
	}
	c.Flags().StringVar(&config, "config", "", "configuration file (YAML); default: everything in the state directory "+defaultStateDir())
	c.Flags().BoolVar(&example, "example", false, "write a configuration file with every key and its default, and end")
	return c
}

// serveEngine runs until the engine fails or a signal asks for a stop.
func serveEngine(c *cobra.Command, cfg engineConfig) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
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

func loggerTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}
