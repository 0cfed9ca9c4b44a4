package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
)

func journalBackupCommand() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use:     "backup FILE",
		Short:   "Write a checked copy of a stopped engine's journal",
		Long:    "Write a checked, consistent copy of the journal to FILE, which is replaced once the copy is on stable storage. The engine must not be running, as it alone may read its journal: a running one writes copies by itself where falcon.yaml has journal.backup_dir (see falcon serve --help).",
		Example: "  falcon journal backup /backup/journal-monday.db\n  falcon journal backup /backup/journal-monday.db --journal /var/lib/falcon/journal.db",
		Args:    oneBackup,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := journal.Copy(from, args[0])
			if errors.Is(err, journal.ErrLocked) {
				return fmt.Errorf(
					"%w; or have the running engine write copies by itself: journal.backup_dir of falcon.yaml",
					err,
				)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", args[0], reportText(r))
			return err
		},
	}
	journalFlag(c, &from)
	return c
}

func journalRestoreCommand() *cobra.Command {
	var to string
	var force bool
	c := &cobra.Command{
		Use:     "restore FILE",
		Short:   "Bring a backup back as the journal; the engine must not be running",
		Long:    "Check the backup FILE and put it in the journal's place. What happened after the backup is not in it: above all look which nodes were fenced since. A journal that is there is only replaced with --force, and stays beside the new one. Numbers of commands go on far above those that can have been used since the backup.",
		Example: "  falcon journal restore /backup/journal-monday.db\n  falcon journal restore --force /backup/journal-monday.db",
		Args:    oneBackup,
		RunE: func(c *cobra.Command, args []string) error {
			r, aside, err := journal.Restore(args[0], to, force)
			if err != nil {
				return err
			}
			if err := engine.MarkLoss(to, time.Now(), fmt.Sprintf(
				"the journal was restored from a backup that ends at record %d: what happened after that is not in it",
				r.Head.Seq,
			)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(),
				"%s: restored, %s%s\nFences, decisions and policies after record %d are not in it: look which nodes must stay out before you start the engine.\nAt its next start the engine hears the nodes first, for up to a minute, and acts on nobody meanwhile: it goes on above the generation and epoch that they have seen, with the job as they describe it.\n",
				to, reportText(r), asideText(aside), r.Head.Seq)
			return err
		},
	}
	journalFlag(c, &to)
	c.Flags().BoolVar(&force, "force", false,
		"replace a journal that is there (it is kept beside the new one)")
	return c
}

func journalRepairCommand() *cobra.Command {
	var accept bool
	c := &cobra.Command{
		Use:     "repair [FILE]",
		Short:   "Keep the records before the first broken one, and pass unreadable ones over; the engine must not be running",
		Long:    "Keep the records before the first broken one and say what is given up: nothing is changed without --accept-loss where records are. Records that are unbroken and that no engine can read, which falcon journal verify names, are passed over from then on. The damaged file stays beside the new one. A head file that is missing or damaged is written again from an unbroken journal. Restore a backup instead where there is a newer one.",
		Example: "  falcon journal repair\n  falcon journal repair --accept-loss /var/lib/falcon/journal.db",
		Args:    oneJournal,
		RunE: func(c *cobra.Command, args []string) error {
			path := journalPath(args)
			out, err := journal.Repair(path, accept)
			if err != nil {
				return err
			}
			if out.Lost > 0 || out.Aside != "" {
				err = engine.MarkLoss(path, time.Now(), fmt.Sprintf(
					"the journal was repaired and ends at record %d: %s",
					out.Head.Seq, lossText(out),
				))
			}
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", path, repairedText(out)); err != nil {
				return err
			}
			return passOver(c.OutOrStdout(), path, accept)
		},
	}
	c.Flags().BoolVar(&accept, "accept-loss", false, "give up the records after the first broken one")
	return c
}

// passOver has an engine start without records that it can't read, if it needs leave for any.
func passOver(w io.Writer, path string, accept bool) error {
	refused, err := engine.VerifyRecords(path)
	if err != nil || len(stopping(refused)) == 0 {
		return err
	}
	if !accept {
		return fmt.Errorf(
			"%w: %s, and %d more; restore a backup with falcon journal restore, or have them passed over with --accept-loss: look first which nodes must stay out",
			engine.ErrJournal, refused[0], len(refused)-1,
		)
	}
	if err := engine.PassOver(path, time.Now(), refused); err != nil {
		return err
	}
	return writeString(w, fmt.Sprintf(
		"%s: %d records that can't be read are passed over from now on; fences and decisions in them are not known\n",
		path, len(refused),
	))
}

func journalFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "journal", journalPath(nil), "the engine's journal")
}

var oneBackup = oneArgument("give one FILE")

func asideText(aside string) string {
	if aside == "" {
		return ""
	}
	return "; the file that was there is now " + aside
}

func lossText(r journal.Repaired) string {
	text := "what followed is given up"
	if r.Lost > 0 {
		text = fmt.Sprintf("%d records that followed are given up", r.Lost)
	}
	if r.TailLost {
		text = "what was kept for the audit is given up"
	}
	return text
}

func repairedText(r journal.Repaired) string {
	if r.Why == "" {
		return fmt.Sprintf("nothing to repair: %d records, unbroken", r.Head.Seq)
	}
	if r.Lost == 0 && r.Aside == "" {
		return fmt.Sprintf("%s: it is written again for %d records; nothing is lost", r.Why, r.Head.Seq)
	}
	return fmt.Sprintf(
		"%s: %s, %d records are kept%s; look which nodes must stay out before you start the engine",
		r.Why, lossText(r), r.Head.Seq, asideText(r.Aside),
	)
}
