package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/plain"
	"github.com/failslow/falcon/tui/record"
)

// replayOptions are the flags of `falcon replay`.
type replayOptions struct {
	speed    float64
	headless bool
	json     bool
	paused   bool
	at       string
	theme    string
	ascii    bool
	reader   readerOption
	picture  pictureOptions
}

func replayCommand() *cobra.Command {
	var o replayOptions
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Show a recording of a console as it was",
		Long: "Show a recording of a console as it was: the same pages, at the recorded pace or faster; nothing can be decided in it.\n" +
			"Recordings are made by falcon console --record FILE and falcon lab run --record FILE.",
		Example: "  falcon replay night.frec --speed 8 --at 14:02:11\n  falcon replay night.frec --headless\n" +
			"  falcon replay night.frec --picture ranks.png --at incident:1 --page ranks --size 120x40",
		Args: oneArgument("give the recording's FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(
				c.Context(),
				os.Interrupt,
				syscall.SIGTERM,
				syscall.SIGHUP,
			)
			defer stop()
			return replayRecording(ctx, c.OutOrStdout(), args[0], o)
		},
	}
	f := c.Flags()
	f.Float64Var(&o.speed, "speed", 1, "times the recorded pace, 0.1 to 1000")
	f.StringVar(&o.at, "at", "",
		"begin there: an iteration, a time of day such as 14:02:11 (UTC), event:N, incident:N, start or end")
	f.BoolVar(&o.paused, "paused", false, "stand still at first")
	f.BoolVar(&o.headless, "headless", false,
		"print the plain lines at once; used by itself without a terminal")
	f.BoolVar(&o.json, "json", false, "write what the recording holds as one JSON document")
	o.reader.declareFlag(f)
	f.StringVar(&o.theme, "theme", "", "console theme")
	f.BoolVar(&o.ascii, "ascii", false, "draw with ASCII characters only")
	f.StringVar(&o.picture.file, "picture", "", "write the screen at --at to this PNG file instead")
	f.StringVar(&o.picture.size, "size", "120x40", "of the picture: columns x rows")
	f.StringVar(&o.picture.page, "page", "overview", "of the picture")
	return c
}

func replayRecording(ctx context.Context, out io.Writer, path string, o replayOptions) error {
	if o.speed < 0.1 || o.speed > 1000 {
		return fmt.Errorf("%w: --speed is %v, it must be 0.1 to 1000", errUsage, o.speed)
	}
	if err := checkTheme(o.theme); err != nil {
		return err
	}
	r, err := openRecording(path)
	if err != nil {
		return err
	}
	switch {
	case o.picture.file != "":
		return drawPicture(r, o)
	case o.json:
		return writeJSON(out, describe(r))
	}
	reader, err := o.reader.readerWanted("")
	if err != nil {
		return err
	}
	if o.at != "" && (o.headless || reader || !hasScreen()) {
		return fmt.Errorf(
			"%w: --at is a place on the screen or of --picture; the lines tell the whole recording",
			errUsage,
		)
	}
	if o.headless || reader || !hasScreen() {
		return spoken(reader, out, func(out io.Writer) error {
			return replayLines(out, r)
		})
	}
	if done, err := guarded(true, "replay", ""); done {
		return err
	}
	return replayScreen(ctx, r, o)
}

// openRecording says in one sentence what is wrong with a file.
func openRecording(path string) (*record.Recording, error) {
	r, err := record.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf(
			"there is no recording %s; check the path, or record one with falcon console --record FILE",
			clean.String(path),
		)
	case errors.Is(err, record.ErrFormat):
		return nil, fmt.Errorf("%s is not a recording; record one with falcon console --record FILE",
			clean.String(path))
	case errors.Is(err, record.ErrVersion):
		return nil, fmt.Errorf(
			"%s was recorded by another version of Falcon; export it with that version: falcon replay FILE with --headless, --json or --picture",
			clean.String(path),
		)
	case errors.Is(err, record.ErrEmpty):
		return nil, fmt.Errorf("%s holds no picture: it was cut before the first", clean.String(path))
	}
	return r, err
}

// playFrom makes a player that begins at --at.
func playFrom(r *record.Recording, o replayOptions, paused bool) (*record.Player, error) {
	from, err := record.ParsePlace(o.at)
	if err != nil {
		return nil, fmt.Errorf("%w: --at: %s", errUsage, strings.TrimPrefix(err.Error(), "record: "))
	}
	p, err := record.NewPlayer(r, record.PlayerOptions{
		Speed:  o.speed,
		Paused: paused,
		From:   from,
	})
	if err != nil {
		return nil, fmt.Errorf("--at: %s", strings.TrimPrefix(err.Error(), "record: "))
	}
	return p, nil
}

func replayScreen(ctx context.Context, r *record.Recording, o replayOptions) error {
	p, err := playFrom(r, o, o.paused)
	if err != nil {
		return err
	}
	defer p.Close()
	return tui.Run(
		ctx,
		p,
		tui.Terminal{In: os.Stdin, Out: os.Stdout},
		tui.Options{Theme: o.theme, ASCII: o.ascii, Replay: p},
	)
}

func replayLines(out io.Writer, r *record.Recording) error {
	var bad error
	err := plain.Replay(out, pictures(r, &bad))
	switch {
	case err != nil || bad != nil:
		return errors.Join(err, bad)
	case r.Cut != "":
		fmt.Fprintf(out, "the recording was cut here: %s\n", r.Cut)
	}
	return nil
}

func pictures(r *record.Recording, bad *error) iter.Seq2[time.Time, *feed.State] {
	return func(yield func(time.Time, *feed.State) bool) {
		*bad = r.All(func(m record.Moment, s *feed.State) bool {
			return yield(m.At, s)
		})
	}
}

// recordingJSON is what --json writes of a recording.
type recordingJSON struct {
	Version        string    `json:"version"`
	From           string    `json:"from"`
	First          time.Time `json:"first"`
	Last           time.Time `json:"last"`
	Pictures       int       `json:"pictures"`
	Lost           uint64    `json:"lost_pictures"`
	FirstIteration int64     `json:"first_iteration"`
	LastIteration  int64     `json:"last_iteration"`
	Events         int       `json:"events"`
	Incidents      []string  `json:"incidents"`
	Cut            *string   `json:"cut"`
}

func describe(r *record.Recording) recordingJSON {
	last := r.Moments[len(r.Moments)-1]
	j := recordingJSON{
		Version:        r.Version,
		From:           r.From,
		First:          r.Moments[0].At,
		Last:           last.At,
		Pictures:       len(r.Moments),
		FirstIteration: r.Moments[0].Iteration,
		LastIteration:  last.Iteration,
		Incidents:      []string{},
	}
	if r.Cut != "" {
		j.Cut = &r.Cut
	}
	for _, m := range r.Moments {
		j.Lost += m.Dropped
		if m.Event {
			j.Events++
		}
		if m.Incident {
			j.Incidents = append(j.Incidents, m.Begins...)
		}
	}
	return j
}
