package tui

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

var (
	streamCount = flag.Int("streams", 14, "streams of characters that are played into consoles")
	streamFirst = flag.Uint64("stream-first", 1, "seed of the first")
)

// openDecision is a console at which something waits to be decided, and the key of its dialog.
type openDecision struct {
	name  string
	page  key.Scope
	key   string
	state func(t *testing.T) *feed.State
}

func at(o enginetest.Options, iter int64, before func(*enginetest.Engine)) func(*testing.T) *feed.State {
	return func(t *testing.T) *feed.State {
		t.Helper()
		e := enginetest.New(o)
		e.AdvanceTo(iter)
		if before != nil {
			before(e)
		}
		return pictureOf(t, e, wide)
	}
}

// openDecisions are all kinds of decisions.
var openDecisions = []openDecision{
	{"approve S2", key.Overview, "a", at(enginetest.Options{}, 54, nil)},
	{"veto S2", key.Overview, "v", at(enginetest.Options{}, 54, nil)},
	{"approve S4", key.Ladder, "a", at(enginetest.Options{Rung: "S4"}, 54, nil)},
	{"take a rung", key.Ladder, "x", at(enginetest.Options{}, 54, nil)},
	{"undo", key.Overview, "U", at(enginetest.Options{}, 54, func(e *enginetest.Engine) {
		decides(e)
		e.Advance(20)
	})},
	{"withdraw S3", key.Overview, "v", at(enginetest.Options{Rung: "S3", Undo: 10}, 92, approves("li"))},
	{
		"approve a recovery",
		key.Recovery,
		"a",
		at(enginetest.Options{}, 54, func(e *enginetest.Engine) {
			e.Lose(falcon.RecoveryProposed)
		}),
	},
	{
		"abort a recovery",
		key.Recovery,
		"X",
		at(enginetest.Options{}, 54, func(e *enginetest.Engine) {
			e.Lose(falcon.RecoveryReplace)
		}),
	},
	{"test", key.Validate, "x", at(enginetest.Options{}, 54, nil)},
	{"end a test", key.Validate, "X", at(enginetest.Options{}, 54, asks(allTests))},
	{"mode", key.Overview, "c", at(enginetest.Options{}, 30, nil)},
	{"freeze", key.Overview, "F", at(enginetest.Options{}, 30, nil)},
	{"unfreeze", key.Overview, "F", at(enginetest.Options{}, 30, freezes)},
	{"leave", key.Overview, "q", at(enginetest.Options{}, 30, nil)},
}

func freezes(e *enginetest.Engine) {
	_, _ = e.SetPolicy(context.Background(), &falconv1.SetPolicyRequest{Policy: &falconv1.Policy{
		Mode:    e.Policy().Mode,
		Cap:     e.Policy().Cap,
		Version: e.Policy().Version,
		Frozen:  true,
	}})
}

// streamTexts are what gets into a console by mistake: tables, programs, logs, every key.
var streamTexts = []func(*rand.Rand) string{
	func(*rand.Rand) string { return strings.Repeat("a\t32\r", 150) },
	func(*rand.Rand) string { return strings.Repeat("gpu-a100\t32\r", 60) },
	func(*rand.Rand) string { return strings.Repeat("a\t\r\n", 100) },
	func(*rand.Rand) string { return strings.Repeat("X\tworn\t\r", 90) },
	func(*rand.Rand) string { return strings.Repeat("v\r", 200) },
	func(*rand.Rand) string { return strings.Repeat("F\r\rq\r", 100) },
	func(*rand.Rand) string { return strings.Repeat("func main() {\r\tx := 32\r\treturn\t\r}\r", 20) },
	func(*rand.Rand) string { return strings.Repeat("2026-11-21 14:00:30Z\tn1.g0\tslow\t\r", 20) },
	func(*rand.Rand) string { return strings.Repeat(":freeze\r\runfreeze\r:approve\r\t\r", 20) },
	func(r *rand.Rand) string { // every byte
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return string(b)
	},
	func(r *rand.Rand) string { // the console's own keys, and others
		list := append(
			[]string{
				"\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[Z", "\x1b", "\x03", "\x1b[2;3R",
				"\x1b[200~", "\x1b[201~",
			},
			strings.Split("aavvxxXUFcq567\t\t\r\r\n 0123456789bcdefghijklmnoprstuwyz:/?-_+.,", "")...,
		)
		out := ""
		for range 400 {
			out += pick(r, list)
		}
		return out
	},
}

// Streams of characters, of any speed and text, with and without the marks of a paste, confirm
// nothing: with a dialog open or without.
func TestStreamsConfirmNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a stream takes seconds: left to the run without -short")
	}
	speeds := []int{1, 2, 3, 5, 8, 12, 20, 50, 300, 1000, 10000, 100000}
	for seed := *streamFirst; seed < *streamFirst+uint64(*streamCount); seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		open := openDecisions[int(seed)%len(openDecisions)]
		text := []byte(streamTexts[int(seed/2)%len(streamTexts)](r))
		speed := pick(r, speeds)
		text = text[:min(len(text), 300*speed)]
		if r.IntN(3) == 0 {
			text = bytes.Join([][]byte{[]byte("\x1b[200~"), text, []byte("\x1b[201~\t\r")}, nil)
		}
		opened := r.IntN(2) == 0
		startFar(t, open.state(t), open.page, line{}, line{}, false, func(x *farTerm) {
			if opened {
				x.types([]byte(open.key), 5)
				time.Sleep(3 * time.Second)
			}
			x.types(text, speed)
			time.Sleep(5 * time.Second)
			if n := x.effects(); n != 0 {
				t.Errorf("seed %d: %s, dialog open %v, %d B/s, %.40q: %d effects: %v %v %v %v, %d freezes",
					seed, open.name, opened, speed, text, n,
					x.src.decides, x.src.words, x.src.tests, x.src.policies, x.src.freezes)
			}
		})
	}
}

// A person's keys confirm what they read, at 5 to 12 a second; and each kind of decision has a way.
func TestAPersonConfirms(t *testing.T) {
	for _, open := range openDecisions {
		keys := map[string]string{"approve S4": "gpt-lab 8\rworn\r\r", "mode": "\x1b[B\t\r"}[open.name]
		switch open.name {
		case "veto S2", "withdraw S3", "freeze", "end a test":
			keys = "\r"
		case "approve S4", "mode":
		default:
			keys = "\t\r"
		}
		paces := []int{5, 8, 12}
		if testing.Short() {
			paces = paces[2:]
		}
		for _, speed := range paces {
			startFar(t, open.state(t), open.page, line{}, line{}, false, func(x *farTerm) {
				x.types([]byte(open.key), 5)
				time.Sleep(time.Second)
				if open.name == "mode" {
					x.up.in <- []byte(keys[:3])
					time.Sleep(time.Second / time.Duration(speed))
					keys = keys[3:]
				}
				x.types([]byte(keys), speed)
				time.Sleep(2 * time.Second)
				if n := x.effects(); n != 1 {
					t.Errorf("%s by %q at %d a second: %d effects: %s",
						open.name, keys, speed, n, x.model.notes.text)
				}
			})
			if open.name == "mode" {
				keys = "\x1b[B\t\r"
			}
		}
	}
}
