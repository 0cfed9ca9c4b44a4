package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/png"
	"github.com/failslow/falcon/tui/record"
)

// pictureOptions say what a picture shows.
type pictureOptions struct {
	file string // "" = none is wanted
	size string
	page string
}

// drawPicture writes one screen of a recording as PNG.
func drawPicture(r *record.Recording, o replayOptions) error {
	w, h, err := parseSize(o.picture.size)
	if err != nil {
		return err
	}
	page, err := parsePage(o.picture.page)
	if err != nil {
		return err
	}
	p, err := playFrom(r, o, true)
	if err != nil {
		return err
	}
	defer p.Close()
	view, err := tui.Still(
		p,
		tui.Options{Theme: o.theme, ASCII: o.ascii, Replay: p},
		w,
		h,
		page,
	)
	if err != nil {
		return err
	}
	return writePicture(o.picture.file, view, w, h)
}

func writePicture(path, view string, w, h int) error {
	img, missing, err := png.Draw(view, w, h, png.Options{})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "falcon: no shape for %s; drawn as a frame\n",
			clean.String(strings.Join(missing, " ")))
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return err
	}
	if err := refuseExisting("--picture", path); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func parseSize(text string) (w, h int, err error) {
	a, b, ok := strings.Cut(text, "x")
	w, errW := strconv.Atoi(a)
	h, errH := strconv.Atoi(b)
	if !ok || errW != nil || errH != nil || w < 20 || h < 5 || w > 400 || h > 150 {
		return 0, 0, fmt.Errorf("%w: --size is %q, it must be columns x rows such as 120x40, 20x5 to 400x150",
			errUsage, text)
	}
	return w, h, nil
}

func parsePage(name string) (key.Scope, error) {
	for _, p := range key.Pages {
		if string(p) == name {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: --page is %q, it must be one of %v", errUsage, name, key.Pages)
}
