package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/record"
)

// recorded puts a recording between a feed and the console where one is
// wanted; end finishes it and says what it came to.
func recorded(f feed.Source, opts consoleOptions) (src feed.Source, end func(io.Writer), err error) {
	if opts.Record == "" {
		return f, func(io.Writer) {}, nil
	}
	w, err := newRecording(opts)
	if err != nil {
		return nil, nil, err
	}
	tap := record.NewTap(f, w)
	return tap, func(out io.Writer) {
		tap.Close()
		if err := w.Close(); err != nil {
			fmt.Fprintf(out, "falcon: %s\n", err)
		}
		fmt.Fprintln(out, w.Sum())
	}, nil
}

func newRecording(opts consoleOptions) (*record.Writer, error) {
	from := opts.From
	if from == "" {
		from = "falcon console"
	}
	w, err := record.Create(opts.Record, record.Options{
		Version: version.Own(),
		From:    from,
		Resume:  opts.Resume,
	})
	switch {
	case errors.Is(err, record.ErrExists):
		return nil, fmt.Errorf(
			"%w: --record: %s exists; choose another name, or go on with it by --record-on",
			errUsage, clean.String(opts.Record),
		)
	case errors.Is(err, record.ErrFormat):
		return nil, fmt.Errorf("%w: --record: %s is no recording to go on with; choose another name",
			errUsage, clean.String(opts.Record))
	case errors.Is(err, record.ErrVersion):
		return nil, fmt.Errorf("%w: --record-on: %s was recorded by another version; choose another name",
			errUsage, clean.String(opts.Record))
	case err != nil:
		return nil, fmt.Errorf("--record: %w", err)
	}
	return w, nil
}

// recording records beside something that has no screen, by a feed of its own.
func recording(client falconv1.ConsoleClient, opts consoleOptions, do func() error) error {
	if opts.Record == "" {
		return do()
	}
	f := feed.New(client, nil)
	defer f.Close()
	_, end, err := recorded(f, opts)
	if err != nil {
		return err
	}
	defer end(os.Stderr)
	return do()
}
