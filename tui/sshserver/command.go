package sshserver

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/failslow/falcon/tui/link"
)

// errAsk is wrapped where a command is none of Falcon's.
var errAsk = errors.New("not understood")

// usage is what "ssh host help" prints.
const usage = `Falcon's console over SSH.

  ssh -p 2222 HOST                       the screen
  ssh -p 2222 -t HOST inc/INC-0001       the screen, opened there (also rec/REC-0001, rank/12, a page's name)
  ssh -p 2222 HOST                       without a terminal: lines, one a change; decisions by numbered prompts
  ssh -p 2222 HOST -- --plain            lines, also on a terminal
  ssh -p 2222 HOST -- --screen-reader    lines for a screen reader: words for signs, sentences for tables
  ssh -p 2222 HOST -- --once [--json]    the state now, and end

Options: --theme NAME, --ascii, --color truecolor|256|16|none
`

// sessionCommand is what a session was started for.
type sessionCommand struct {
	plain, once, json, ascii, help bool
	reader                         bool // lines for a screen reader
	theme, color                   string
	open                           *link.Target // nil = nothing in particular
}

// parseCommand reads the command that came with a session; "" asks for the screen.
// It is data, never given to a shell.
func parseCommand(command string) (sessionCommand, error) {
	var a sessionCommand
	f := pflag.NewFlagSet("falcon", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.BoolVar(&a.plain, "plain", false, "")
	f.BoolVar(&a.once, "once", false, "")
	f.BoolVar(&a.json, "json", false, "")
	f.BoolVar(&a.reader, "screen-reader", false, "")
	f.BoolVar(&a.ascii, "ascii", false, "")
	f.BoolVarP(&a.help, "help", "h", false, "")
	f.StringVar(&a.theme, "theme", "", "")
	f.StringVar(&a.color, "color", "", "")
	if strings.IndexFunc(command, func(r rune) bool {
		return r < ' ' || r == 0x7f
	}) >= 0 {
		return a, fmt.Errorf("%w: it holds control characters", errAsk)
	}
	if err := f.Parse(strings.Fields(command)); err != nil {
		return a, fmt.Errorf("%w: %w; see: ssh HOST help", errAsk, err)
	}
	words := f.Args()
	if len(words) > 0 && words[0] == "help" {
		a.help, words = true, nil
	}
	if len(words) > 0 {
		to, err := link.Parse(strings.Join(words, " "))
		if err != nil {
			return a, fmt.Errorf("%w: %s; see: ssh HOST help",
				errAsk, strings.TrimPrefix(err.Error(), link.ErrLink.Error()+": "))
		}
		a.open = &to
	}
	return a, a.validate()
}

func (a sessionCommand) validate() error {
	switch {
	case a.json && !a.once:
		return fmt.Errorf("%w: --json goes with --once", errAsk)
	case a.color != "" && profiles[a.color] == nil:
		return fmt.Errorf("%w: --color is truecolor, 256, 16 or none", errAsk)
	}
	return nil
}
