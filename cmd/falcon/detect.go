package main

import "github.com/spf13/cobra"

// detectCommand is the production detector on files.
func detectCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "detect",
		Short:   "Run the production detector on files",
		Example: "  falcon detect iterations run.csv --column ms",
	}
	c.AddCommand(detectIterationsCommand(), detectCallsCommand(), detectWorkersCommand(), detectProfileCommand(), detectTraceCommand())
	return c
}
