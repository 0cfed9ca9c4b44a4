package read_test

import (
	"bytes"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/autopsy/read"
)

// Any file gives an answer: it names only what is printable and has bounded evidence.
func FuzzFile(f *testing.F) {
	for _, c := range cases {
		f.Add(c.name, []byte(c.text[:min(len(c.text), 4096)]))
	}
	for _, c := range reports {
		f.Add(c.name, []byte(c.text[:min(len(c.text), 4096)]))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if len(data) > 1<<16 || len(name) > 100 {
			return
		}
		var set read.Set
		set.Add(name, func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data)), nil
		})
		a := autopsy.Judge(set.Facts())
		if len(a.Inputs) != 1 ||
			a.Kind == "" ||
			a.Summary == "" ||
			len(a.Findings) > 64 {
			t.Fatalf("%+v", a)
		}
		if a.Confidence < 0 || a.Confidence > 1 || a.Slowdown < 0 {
			t.Fatalf("confidence %g, slowdown %g", a.Confidence, a.Slowdown)
		}
		for _, x := range a.Findings {
			if !utf8.ValidString(x.Quote) || len(x.Quote) > 300 {
				t.Fatalf("a quote of %d bytes: %q", len(x.Quote), x.Quote)
			}
		}
	})
}
