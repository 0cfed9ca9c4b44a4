package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// A job all of whose ranks fail before the first communicator was never described: its layout was not
// known. It is then, a person is asked, and what is said first has the reason.
func TestAJobThatFailsBeforeItsFirstCommunicatorIsAskedAbout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*falconv1.RankState)
		asked  bool
	}{
		"all fail": {func(*falconv1.RankState) {}, true},
		"one ends with success": {func(s *falconv1.RankState) {
			if s.Rank == 3 {
				s.Exit = falconv1.ExitedNormally
				s.Raised = nil
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.recovers = true
				b.policy = falcon.Policy{Mode: falcon.ModeAuto}
				b.start()
				report := func(alive bool) {
					for i, a := range b.job.agents {
						for r := int32(2 * i); r < int32(2*i+2); r++ {
							f := b.job.rankState(a.node, r)
							s := f.GetRank()
							s.Tp = 0
							s.Dp = 0
							s.Pp = 0
							s.MicroBatches = 0
							s.Comms = nil
							s.Can = nil
							if s.Alive = alive; !alive {
								s.Exit = falconv1.ExitStatus(1)
								s.Raised = &falconv1.Raised{
									Kind:  "ModuleNotFoundError",
									Where: "train.py:3",
									Text:  "No module named 'flash_attn'",
								}
							}
							c.change(s)
							a.send(f)
						}
					}
					synctest.Wait()
				}
				report(true)
				time.Sleep(time.Second)
				report(false)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				list := b.recoveries()
				s, err := b.engine.Latest(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if !c.asked {
					if len(list) != 0 {
						t.Errorf("%+v", list)
					}
					return
				}
				if len(list) != 1 ||
					list[0].State != falcon.RecoveryProposed ||
					list[0].Together != falcon.EndsUnbegun ||
					len(list[0].Launched) > 0 {
					t.Fatalf("%+v", list)
				}
				first := statements.First(statements.Picture{
					Snap: s.Reply,
					Now:  b.engine.Time(),
				})
				words := statements.Spoken(first.Recovery).GetWords()
				if first.Kind != statements.Failed ||
					!strings.Contains(words,
						"ModuleNotFoundError at train.py:3: No module named 'flash_attn'") {
					t.Errorf("%s: %q", first.Kind, words)
				}
			})
		})
	}
}
