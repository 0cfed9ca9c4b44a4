package vote

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/sentencetest"
)

// Each testdata/*.txt is what comes to be known of a vote, and below each what has
// become of the order. Run with -rewrite to write the answers again, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{t: t, now: time.Unix(1000, 0)}
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(d)
			})
		})
	}
}

// What people read decides nothing: with each sentence of a node or of the job's end replaced, the
// same becomes of the order.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	replay := func(file string, say func(string) string) (did []string) {
		s := &script{t: t, now: time.Unix(1000, 0), say: say}
		datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
			text := s.do(d)
			if text, _, failed := strings.Cut(text, "can't take effect: "); failed {
				did = append(did, text+"can't take effect")
			} else {
				did = append(did, text)
			}
			return d.Expected
		})
		return did
	}
	sentencetest.Check(t, files, 1, replay, func(text string) string { return sentencetest.Blank(text) })
}

type script struct {
	say  func(string) string // what becomes of a sentence; nil = nothing
	t    *testing.T
	now  time.Time
	v    *Vote
	at   Situation
	kept *First // in the journal
	made falcon.Order
}

func (s *script) do(d *datadriven.TestData) string {
	text := func(key string) string {
		var v string
		if d.HasArg(key) {
			d.ScanArgs(s.t, key, &v)
		}
		return strings.ReplaceAll(v, "_", " ")
	}
	number := func(key string, otherwise int64) int64 {
		n, err := strconv.ParseInt(text(key), 10, 64)
		if err != nil {
			return otherwise
		}
		return n
	}
	sentence := func(key string) string {
		if s.say == nil {
			return text(key)
		}
		return s.say(text(key))
	}
	switch d.Cmd {
	case "order":
		s.made = falcon.Order{Epoch: 1, ID: 5, Kind: falcon.OrderKind(text("kind"))}
		s.v, s.kept = New(s.made, nil), nil
		s.at = Situation{
			JobEpoch: uint64(number("epoch", 1)),
			World:    int(number("world", 2)),
			Deadline: s.now.Add(30 * time.Second),
		}
	case "restarted": // the engine has what the journal has
		s.v = New(s.made, s.kept)
		s.at.Quiet = s.now.Add(Wait)
	case "ack":
		res := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
		res.Ranks = append(res.Ranks, &falconv1.RankAck{
			Rank:            int32(number("rank", 0)),
			Order:           uint64(number("order", 5)),
			Iteration:       number("iteration", 7),
			Status:          int32(number("status", 0)),
			ResumeIteration: number("resume", 0),
			MovedBytes:      uint64(number("bytes", 0)),
			StepMs:          []float64{float64(number("ms", 0)), 1},
		})
		s.v.Answer("n0", res)
	case "refuse":
		s.v.Answer(
			falcon.Node(text(
				"node",
			)),
			&falconv1.CommandResult{
				Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
				Detail: sentence("why"),
			},
		)
	case "accept":
		s.v.Answer(falcon.Node(text(
			"node",
		)), &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED})
	case "announce":
		state := &falconv1.RankState{
			Committed: &falconv1.Commitment{
				Order:     uint64(number("order", 5)),
				Iteration: number("iteration", 7),
			},
		}
		next := &falconv1.RankState{
			PlacementOrder:     uint64(number("order", 5)),
			PlacementIteration: number("iteration", 7),
		}
		s.v.Announce(s.now, falcon.Rank(number("rank", 0)), state, next)
	case "job":
		s.at.Gone = sentence("gone")
		s.at.Left = d.HasArg("left")
		s.at.Patience = time.Duration(number("patience", 0)) * time.Second
	case "wait":
		s.now = s.now.Add(time.Duration(number("seconds", 0)) * time.Second)
	default:
		s.t.Fatalf("%s: no such command", d.Cmd)
	}
	return s.text()
}

func (s *script) text() string {
	out := ""
	if f := s.v.TakeFirst(); f != nil {
		s.kept = f
		out = fmt.Sprintf("first vote: rank %d from iteration %d, status %d\n", f.Rank, f.Iteration, f.Status)
	}
	v, over := s.v.Outcome(s.now, s.at)
	switch {
	case !over:
		return out + fmt.Sprintf("waits, %d ranks have taken it\n", s.v.Taken())
	case v.Failed != "":
		return out + "can't take effect: " + v.Failed + "\n"
	}
	out += fmt.Sprintf("from iteration %d, status %d, resume %d\n", v.Iteration, v.Status, v.Resume)
	if v.Swap != nil {
		out += fmt.Sprintf("steps %v ms, %.1f MB moved\n", v.Swap.StepMs, v.Swap.MovedMB)
	}
	return out
}
