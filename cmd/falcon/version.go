package main

import (
	"fmt"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/tui/record"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the formats that this falcon shares with other programs",
		Long: "Print the version of this falcon, and the number of each format that it shares: messages to agents and to consoles,\n" +
			"the journal, recordings. docs/cluster.md has which versions work together, and in which order to upgrade.",
		Example: "  falcon version",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), version.Describe("falcon", sharedFormats()))
			return err
		},
	}
}

// sharedFormats are those of the engine and of the console.
func sharedFormats() []version.Format {
	return []version.Format{
		{Name: "agents", Number: falconv1.ProtocolRevision, Oldest: 0},
		{Name: "consoles", Number: falconv1.ConsoleRevision, Oldest: 0},
		{Name: "journal", Number: journal.Version, Oldest: 1},
		{Name: "recording", Number: record.Version, Oldest: record.Version},
	}
}
