package main

import (
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/journal"
)

func journalCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "journal",
		Short:   "Check the engine's journal",
		Example: "  falcon journal verify",
	}
	c.AddCommand(journalVerifyCommand())
	return c
}

func journalVerifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "verify [FILE]",
		Short:   "Check every record's place in the hash chain; the engine must not be running",
		Example: "  falcon journal verify /var/lib/falcon/journal.db",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%w: give at most one FILE (see %s --help)", errUsage, c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			path := filepath.Join(defaultStateDir(), journalName)
			if len(args) == 1 {
				path = args[0]
			}
			head, err := journal.Verify(path)
			if err != nil {
				return err
			}
			hash := hex.EncodeToString(head.Hash[:])
			if asJSON {
				return writeJSON(c.OutOrStdout(), map[string]any{"file": path, "records": head.Seq, "head": hash})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d records, unbroken; head %s\n", path, head.Seq, hash)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}
