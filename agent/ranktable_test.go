package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func tableCommand(generation uint64, whole string) *falconv1.Command {
	return &falconv1.Command{
		Body: &falconv1.Command_Table{
			Table: &falconv1.TableCommand{Generation: generation, Table: []byte(whole)},
		},
	}
}

func TestRankTableIsWritten(t *testing.T) {
	cfg := Defaults()
	cfg.RankTable = filepath.Join(t.TempDir(), "hccl.json")
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.order(1, time.Second, tableCommand(2, "two"))
		n.order(2, time.Second, tableCommand(1, "one"))
		n.order(3, time.Second, tableCommand(3, ""))
		got := n.expect(t, accepted, done, accepted, refused, refused)
		if text, err := os.ReadFile(cfg.RankTable); string(text) != "two" || err != nil {
			t.Fatalf("%q, %v", text, err)
		}
		if !strings.Contains(got[3].Detail, "generation 1 is older than 2") ||
			!strings.Contains(got[4].Detail, "whole or as a delta") {
			t.Fatalf("results %v", got)
		}
		c := tableCommand(4, "")
		c.GetTable().Delta, c.GetTable().BaseGeneration = []byte(
			`{"base":{"generation":3},"result":{"generation":4}}`,
		),
			3
		n.order(4, time.Second, c)
		if got := n.ship.results(); !strings.Contains(got[len(got)-1].Detail, "send it whole") {
			t.Fatalf("result %v", got[len(got)-1])
		}
	})
}

// An agent that writes no table is told the generation alone, and has nothing to do.
func TestNoRankTableIsWanted(t *testing.T) {
	onNodeWith(t, Defaults(), Options{}, func(t *testing.T, n *node) {
		c := tableCommand(2, "")
		c.GetTable().None = true
		n.order(1, time.Second, c)
		n.expect(t, accepted, done)
	})
}

func TestRankTableWithoutAPlace(t *testing.T) {
	cfg := Defaults()
	cfg.RankTable = filepath.Join(t.TempDir(), "absent", "hccl.json")
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.order(1, time.Second, tableCommand(2, "two"))
		got := n.expect(t, accepted, refused)
		if !strings.Contains(got[1].Detail, "rank_table in agent.yaml") {
			t.Fatalf("result %v", got[1])
		}
	})
}
