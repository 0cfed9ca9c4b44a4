package tui_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/png"
	"github.com/failslow/falcon/tui/record"
)

var picturesDir = flag.String("pictures", "", "folder to draw the documentation's pictures into")

// screenshot is one picture of the documentation.
type screenshot struct {
	name  string
	page  key.Scope
	w, h  int
	theme string
	at    string // place of the recording; "" = from the scripted engine
	big   bool   // 100,000 ranks
	keys  string
}

func screenshots() []screenshot {
	var out []screenshot
	at := map[key.Scope]string{
		key.Ranks:  "50",
		key.Grid:   "50",
		key.Events: "200",
	}
	for _, p := range key.Pages {
		s := screenshot{
			name:  string(p),
			page:  p,
			w:     120,
			h:     40,
			theme: "dark",
			at:    "120",
		}
		if at[p] != "" {
			s.at = at[p]
		}
		out = append(out, s)
	}
	return append(out,
		screenshot{
			name:  "overview-80x24",
			page:  key.Overview,
			w:     80,
			h:     24,
			theme: "dark",
			at:    "120",
		},
		screenshot{
			name:  "light",
			page:  key.Overview,
			w:     120,
			h:     40,
			theme: "light",
			at:    "120",
		},
		screenshot{
			name:  "deuteranopia",
			page:  key.Posterior,
			w:     120,
			h:     40,
			theme: "deuteranopia",
			at:    "120",
		},
		screenshot{
			name:  "approve",
			page:  key.Ladder,
			w:     120,
			h:     40,
			theme: "dark",
			keys:  "a",
		},
		screenshot{
			name:  "ranks-100k",
			page:  key.Ranks,
			w:     120,
			h:     40,
			theme: "dark",
			big:   true,
			keys:  "+",
		},
	)
}

// TestPictures draws the documentation's pictures of the console: from a
// recording of the lab, and, where the lab is too small or no approval was
// asked for, from the scripted engine. The same recording gives the same bytes.
func TestPictures(t *testing.T) {
	if *picturesDir == "" {
		t.Skip("draws only with -pictures DIR")
	}
	r, err := record.Open("../cmd/falcon/testdata/gpu-throttle.frec")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range screenshots() {
		s.write(t, s.view(t, r))
	}
}

func (s screenshot) view(t *testing.T, r *record.Recording) string {
	t.Helper()
	opts := tui.Options{Theme: s.theme}
	if s.at == "" {
		src := scripted(t, s.big)
		opts.Now = src.now
		return s.still(t, src, opts)
	}
	place, err := record.ParsePlace(s.at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := record.NewPlayer(r, record.PlayerOptions{
		Speed:  1,
		Paused: true,
		From:   place,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	opts.Replay = p
	return s.still(t, p, opts)
}

func (s screenshot) still(t *testing.T, src feed.Source, opts tui.Options) string {
	t.Helper()
	var keys []tea.KeyPressMsg
	for _, k := range s.keys {
		keys = append(keys, tea.KeyPressMsg{Code: k, Text: string(k)})
	}
	view, err := tui.Still(src, opts, s.w, s.h, s.page, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func (s screenshot) write(t *testing.T, view string) {
	t.Helper()
	img, missing, err := png.Draw(view, s.w, s.h, png.Options{})
	if err != nil || len(missing) > 0 {
		t.Fatalf("%s: %v; no shape for %q", s.name, err, missing)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*picturesDir, s.name+".png"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// oneState is a source that never changes and is never called.
type oneState struct {
	feed.Source
	state *feed.State
}

func (s oneState) now() time.Time         { return s.state.Received }
func (s oneState) Latest() *feed.State    { return s.state }
func (oneState) Changed() <-chan struct{} { return nil }
func (oneState) Done() <-chan struct{}    { return nil }
func (oneState) Ask(feed.Want)            {}
func (oneState) Blur(bool)                {}

// scripted is the moment at which S2 waits for a person.
func scripted(t *testing.T, big bool) oneState {
	t.Helper()
	o := enginetest.Options{}
	if big {
		o.TP = 8
		o.DP = 1250
		o.PP = 10
	}
	e := enginetest.New(o)
	e.AdvanceTo(enginetest.Proposed + 2)
	snap, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{
		Rank:       feed.WorstRank,
		Columns:    240,
		RunLengths: 128,
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, snap.AtUnixNs).UTC()
	return oneState{state: &feed.State{
		Snap:       snap,
		Events:     snap.Events,
		Conn:       feed.Live,
		Since:      at,
		Received:   at,
		Memo:       &feed.Memo{},
		Recoveries: &falconv1.RecoveriesReply{},
	}}
}
