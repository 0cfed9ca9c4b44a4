package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/failslow/falcon/backend/api/version"
)

// manCommand writes a man page of each command.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a man page of each command to a folder",
		Example: "  falcon man ~/.local/share/man/man1",
		Args:    oneArgument("give one folder, such as ~/.local/share/man/man1"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("can't make the folder for the man pages: %w", err)
			}
			date := time.Unix(0, 0).UTC() // pages of one version are the same wherever they are written
			head := &doc.GenManHeader{
				Title:   "FALCON",
				Section: "1",
				Source:  "falcon " + version.Own(),
				Manual:  "Falcon",
				Date:    &date,
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, head, args[0]); err != nil {
				return fmt.Errorf("can't write the man pages: %w", err)
			}
			return writeString(
				c.OutOrStdout(),
				"man pages are in "+args[0]+"; man -M or MANPATH finds them\n",
			)
		},
	}
}
