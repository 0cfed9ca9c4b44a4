package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/tui/clean"
)

func journalCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "journal",
		Short:   "Check, read, copy and repair the engine's journal",
		Example: "  falcon journal verify\n  falcon journal show --kind decision --kind outcome\n  falcon journal backup /backup/journal-monday.db",
	}
	c.AddCommand(
		journalVerifyCommand(),
		journalShowCommand(),
		journalBackupCommand(),
		journalRestoreCommand(),
		journalRepairCommand(),
	)
	return c
}

func journalVerifyCommand() *cobra.Command {
	var found verified
	c := documentCommand(&cobra.Command{
		Use:     "verify [FILE]",
		Short:   "Check every record and its place in the hash chain; the engine must not be running",
		Long:    "Check every record's place in the hash chain, and the chain's end against the head file beside it (journal.head of journal.db): a journal that ends before that has lost records. Then read every record as an engine does at its start: one that can't be read is named, with whether the engine starts without it. Older records that a snapshot has replaced can't be checked any more; those that it has kept for the audit are proved by it.",
		Example: "  falcon journal verify /var/lib/falcon/journal.db",
		Args:    oneJournal,
	}, func(_ *cobra.Command, args []string) (verified, error) {
		path := journalPath(args)
		r, err := journal.Verify(path)
		if err != nil {
			return verified{path: path}, err
		}
		refused, err := engine.VerifyRecords(path)
		found = verified{path, r, refused}
		return found, err
	}, func(w io.Writer, v verified) error {
		return writeString(w, v.path+": "+reportText(v.report)+"\n"+refusedText(v))
	})
	write := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := write(c, args); err != nil {
			return err
		}
		return found.check()
	}
	return c
}

// verified is what verify writes.
type verified struct {
	path    string
	report  journal.Report
	refused []engine.Refusal
}

// refusedText names the records that can't be read, one a line.
func refusedText(v verified) string {
	var b strings.Builder
	for _, r := range v.refused {
		what := "an engine starts without it"
		if r.Safety {
			what = "no engine starts"
		}
		fmt.Fprintf(&b, "%s: %s (%s)\n", v.path, r, what)
	}
	return b.String()
}

// check is the error of a journal that no engine starts with.
func (v verified) check() error {
	n := len(stopping(v.refused))
	if n == 0 {
		return nil
	}
	return fmt.Errorf(
		"%w: %d records of %s keep an engine from starting; restore a backup, or have them passed over by falcon journal repair --accept-loss",
		engine.ErrJournal, n, v.path,
	)
}

// stopping are the refusals that keep an engine from starting.
func stopping(list []engine.Refusal) []engine.Refusal {
	return slices.DeleteFunc(slices.Clone(list), func(r engine.Refusal) bool { return !r.Safety })
}

// MarshalJSON counts as records all that there ever were: the number of the newest.
func (v verified) MarshalJSON() ([]byte, error) {
	r := v.report
	return json.Marshal(map[string]any{
		"file":          v.path,
		"records":       r.Head.Seq,
		"head":          hex.EncodeToString(r.Head.Hash[:]),
		"format":        r.Version,
		"written_by":    r.By,
		"refused":       v.refused,
		"replaced":      r.From.Seq,
		"audit_records": r.Kept,
		"audit_lost":    r.TailLost,
		"head_file":     r.Anchored,
	})
}

// reportText is a checked journal in a sentence.
func reportText(r journal.Report) string {
	text := fmt.Sprintf("%d records, unbroken", r.Head.Seq)
	if r.From.Seq > 0 {
		text = fmt.Sprintf("%d records, unbroken from the snapshot that replaces the first %d",
			r.Head.Seq, r.From.Seq)
		if text += fmt.Sprintf("; %d of those are kept for the audit", r.Kept); r.TailLost {
			text += " (a repair has given them up)"
		}
	}
	text += "; head " + hex.EncodeToString(r.Head.Hash[:])
	if !r.Anchored {
		text += "; there is no head file beside it, so records cut off at its end would not be noticed"
	}
	return text
}

func oneJournal(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%w: give at most one FILE (see %s --help)", errUsage, c.CommandPath())
	}
	return nil
}

func journalPath(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return filepath.Join(defaultStateDir(), journalName)
}

func journalShowCommand() *cobra.Command {
	var kinds []string
	var asJSON bool
	c := &cobra.Command{
		Use:     "show [FILE]",
		Short:   "Write the records, oldest first; the engine must not be running",
		Long:    "Write the records, oldest first, one a line: number, time, kind, body. Orders and their outcomes say where a change of places or a restart stood when the engine ended, decisions who decided what, recoveries how far each had come, and fences who is refused since.",
		Example: "  falcon journal show --kind order --kind outcome --kind restart\n  falcon journal show --kind recovery --kind fence --kind sent\n  falcon journal show --kind decision --json",
		Args:    oneJournal,
		RunE: func(c *cobra.Command, args []string) error {
			found := map[string]bool{}
			var offset time.Duration
			_, err := journal.Read(journalPath(args), func(r journal.Record) error {
				found[string(r.Kind)] = true
				offset = engine.OffsetAfter(r, offset)
				r.AtNs += int64(offset)
				if len(kinds) > 0 && !slices.Contains(kinds, string(r.Kind)) {
					return nil
				}
				return writeRecord(c.OutOrStdout(), r, asJSON)
			})
			if err == nil {
				sayAbsent(c.ErrOrStderr(), kinds, found)
			}
			return err
		},
	}
	c.Flags().StringArrayVar(
		&kinds,
		"kind",
		nil,
		"only records of this kind, such as decision, order, outcome, action, restart, recovery, fence; may be repeated",
	)
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document a line")
	return c
}

// sayAbsent names the requested kinds of which the journal has no record:
// a mistyped one would else look as if nothing had happened.
func sayAbsent(w io.Writer, kinds []string, found map[string]bool) {
	for _, k := range kinds {
		if !found[k] {
			fmt.Fprintf(w, "falcon: no record of kind %q; there are %s\n",
				k, clean.String(strings.Join(slices.Sorted(maps.Keys(found)), ", ")))
		}
	}
}

// writeRecord writes a record as one line.
func writeRecord(w io.Writer, r journal.Record, asJSON bool) error {
	body := escaped(r.Body)
	at := time.Unix(0, r.AtNs).UTC().Format(time.RFC3339Nano)
	if !asJSON {
		_, err := fmt.Fprintf(w, "%d %s %s %s\n", r.Seq, at, clean.String(string(r.Kind)), body)
		return err
	}
	return json.NewEncoder(w).Encode(struct {
		Seq  uint64          `json:"seq"`
		At   string          `json:"at"`
		Kind string          `json:"kind"`
		Body json.RawMessage `json:"body"`
	}{r.Seq, at, clean.String(string(r.Kind)), json.RawMessage(body)})
}

// escaped is a JSON body of which nothing can reach the terminal but text, with
// nothing lost: what is not printed stands in it as JSON's \u escapes.
func escaped(body []byte) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(string(body), "\ufffd") {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.IsSpace(r) && r < ' ': // between tokens: strings hold none as they are
			b.WriteByte(' ')
		default:
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		}
	}
	return b.String()
}
