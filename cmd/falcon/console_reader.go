package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/plain"
)

// The variables that ask for a screen reader's lines: Falcon's own, and the one that other
// programs share.
const (
	readerEnv       = "FALCON_SCREEN_READER"
	readerEnvShared = "ACCESSIBLE"
)

// readerOption is the flag of whoever shows lines to a screen reader.
type readerOption struct {
	given bool
	on    bool
}

// declareFlag adds --screen-reader.
func (o *readerOption) declareFlag(f *pflag.FlagSet) {
	f.BoolFunc(
		"screen-reader",
		"lines for a screen reader: no redraw, words for signs, sentences for tables (default: $"+
			readerEnv+", else screen_reader of the preferences)",
		func(text string) error {
			on, err := strconv.ParseBool(text)
			o.given = err == nil
			o.on = on
			return err
		},
	)
}

// wanted resolves flag, then environment, then setting.
func (o *readerOption) wanted(env func(string) string, setting bool) (bool, error) {
	if o.given {
		return o.on, nil
	}
	if text := env(readerEnv); text != "" {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return false, fmt.Errorf("%w: $%s is %q; set it to 1 or 0",
				errUsage, readerEnv, clean.String(text))
		}
		return on, nil
	}
	if text := env(readerEnvShared); text != "" { // any value but a no
		on, err := strconv.ParseBool(text)
		return on || err != nil, nil
	}
	return setting, nil
}

// readerWanted is what the flag, the environment and a file of preferences say together.
func (o *readerOption) readerWanted(prefsFile string) (bool, error) {
	p, err := loadPrefs(prefsFile)
	if err != nil {
		return false, err
	}
	return o.wanted(os.Getenv, p.Reader)
}

// spoken runs a command that writes lines, and hands them to a screen reader where one is wanted.
func spoken(reader bool, out io.Writer, run func(io.Writer) error) error {
	if !reader {
		return run(out)
	}
	s := plain.Speak(out)
	err := run(s)
	if end := s.Close(); err == nil {
		err = end
	}
	return err
}
