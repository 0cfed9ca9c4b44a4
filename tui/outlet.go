package tui

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/tui/keyguard"
)

// The library writes what a program asks for before the picture of the same turn, and both
// from one goroutine. A report that has to be behind a picture is therefore preceded by a
// mark: once the mark has come to the outlet, that picture is the next that is written, and
// what is asked for from then on comes behind it. Marks never reach the terminal.

// The marks: an application program command with a number.
const (
	markStart = "\x1b_falcon:"
	markEnd   = "\x1b\\"
)

// sentMsg says that a mark has come by.
type sentMsg struct{ number uint32 }

// outlet is what a program writes to. It is no file, so that the library asks no terminal for
// its size, which may be any.
type outlet struct {
	to   io.Writer
	send func(tea.Msg) // hands a message to the program; blocks until it is taken or the program ends
}

// markReport is the mark of a report.
func markReport(q keyguard.Report) tea.Cmd {
	return tea.Raw(markStart + strconv.FormatUint(uint64(q.Number), 10) + markEnd)
}

// askReport asks the terminal where the cursor is, at a cell of our choice, and puts it back.
func askReport(q keyguard.Report) tea.Cmd {
	return tea.Raw(
		ansi.SaveCursor + ansi.CursorPosition(q.X+1, q.Y+1) + ansi.RequestCursorPositionReport +
			ansi.RestoreCursor,
	)
}

// Write writes all but the marks.
func (o *outlet) Write(p []byte) (int, error) {
	rest, marks := splitMarks(p)
	if len(rest) > 0 {
		if _, err := o.to.Write(rest); err != nil {
			return 0, fmt.Errorf("tui: write: %w", err)
		}
	}
	for _, n := range marks {
		go o.send(sentMsg{n}) // the program may be waiting for this write
	}
	return len(p), nil
}

// splitMarks takes marks out of what is written. The library writes each whole.
func splitMarks(p []byte) (rest []byte, marks []uint32) {
	if !bytes.Contains(p, []byte(markStart)) {
		return p, nil
	}
	for {
		before, after, found := bytes.Cut(p, []byte(markStart))
		rest = append(rest, before...)
		number, behind, ended := bytes.Cut(after, []byte(markEnd))
		if !found || !ended {
			return rest, marks
		}
		if n, err := strconv.ParseUint(string(number), 10, 32); err == nil {
			marks = append(marks, uint32(n))
		}
		p = behind
	}
}
