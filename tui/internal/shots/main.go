// Command shots draws the documentation's pictures of the console: from a
// recording of the lab, and, where the lab is too small or nobody was asked,
// from the scripted engine. The same recording gives the same bytes. It is a
// tool for developers and part of no shipped binary.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/picture"
	"github.com/failslow/falcon/tui/record"
)

// shot is one picture.
type shot struct {
	name  string
	page  key.Scope
	w, h  int
	theme string
	at    string // place of the recording; "" = from the scripted engine
	big   bool   // 100,000 ranks
	keys  string
}

var shots = func() []shot {
	var out []shot
	at := map[key.Scope]string{key.Ranks: "50", key.Grid: "50", key.Events: "200"}
	for _, p := range key.Pages {
		s := shot{name: string(p), page: p, w: 120, h: 40, theme: "dark", at: "120"}
		if at[p] != "" {
			s.at = at[p]
		}
		out = append(out, s)
	}
	return append(out,
		shot{name: "overview-80x24", page: key.Overview, w: 80, h: 24, theme: "dark", at: "120"},
		shot{name: "light", page: key.Overview, w: 120, h: 40, theme: "light", at: "120"},
		shot{name: "deuteranopia", page: key.Posterior, w: 120, h: 40, theme: "deuteranopia", at: "120"},
		shot{name: "approve", page: key.Ladder, w: 120, h: 40, theme: "dark", keys: "a"},
		shot{name: "ranks-100k", page: key.Ranks, w: 120, h: 40, theme: "dark", big: true, keys: "+"},
	)
}()

func main() {
	file := flag.String("recording", "cmd/falcon/testdata/gpu-throttle.frec", "recording of the lab")
	dir := flag.String("out", "docs/pictures", "folder of the pictures")
	flag.Parse()
	if err := run(*file, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, dir string) error {
	r, err := record.Open(file)
	if err != nil {
		return err
	}
	for _, s := range shots {
		view, err := s.view(r)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := s.write(dir, view); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s shot) view(r *record.Recording) (string, error) {
	opts := tui.Options{Theme: s.theme}
	if s.at == "" {
		src, err := scripted(s.big)
		if err != nil {
			return "", err
		}
		opts.Now = src.now
		return s.still(src, opts)
	}
	place, err := record.ParsePlace(s.at)
	if err != nil {
		return "", err
	}
	p, err := record.NewPlayer(r, record.PlayerOptions{Speed: 1, Paused: true, From: place})
	if err != nil {
		return "", err
	}
	defer p.Close()
	opts.Replay = p
	return s.still(p, opts)
}

func (s shot) still(src tui.Source, opts tui.Options) (string, error) {
	var keys []tea.KeyPressMsg
	for _, k := range s.keys {
		keys = append(keys, tea.KeyPressMsg{Code: k, Text: string(k)})
	}
	return tui.Still(src, opts, s.w, s.h, s.page, keys...)
}

func (s shot) write(dir, view string) error {
	img, missing, err := picture.Draw(view, s.w, s.h, picture.Options{})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("no shape for %q", missing)
	}
	var b bytes.Buffer
	if err := picture.Encode(&b, img); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.name+".png"), b.Bytes(), 0o644)
}
