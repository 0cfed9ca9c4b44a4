package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/recovery"
)

func TestBudgetSlowsDownAnEndlessSource(t *testing.T) {
	b := budget{burst: 4}
	now := time.Unix(0, 0)
	admitted := 0
	for range 10 * 3600 { // one a tenth of a second, for an hour
		if ok, _ := b.admit(now); ok {
			admitted++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if admitted > 4*14 { // periods of 10, 20, … 600, 600 s
		t.Errorf("%d of an endless source within an hour", admitted)
	}
	now = now.Add(time.Hour)
	b.admit(now)
	for range 20 {
		now = now.Add(linesPeriod + time.Second)
		if ok, _ := b.admit(now); !ok || b.period > linesPeriod {
			t.Fatal("a source that was quiet stays slow")
		}
	}
}

// The same report counts once while it is a sign, and different ones of one
// node so many times in a period; another node's are its own.
func TestDeviceReportsAreBounded(t *testing.T) {
	b := newBudgets()
	now := time.Unix(0, 0)
	report := func(node falcon.Node, code int) (bool, int) {
		return b.report(
			node,
			recovery.Device{
				Device: falcon.NewDevice(node, 0),
				Code:   code,
				Fatal:  true,
			},
			now,
		)
	}
	for i := range 1000 {
		if ok, _ := report("n1", 79); ok != (i == 0) {
			t.Fatalf("report %d of the same: %v", i, ok)
		}
	}
	taken := 0
	for code := range 100_000 {
		if ok, _ := report("n1", code); ok {
			taken++
		}
	}
	if taken > reportsBurst || len(b.devices["n1"].recent) > reportsBurst {
		t.Errorf("%d different ones, %d remembered", taken, len(b.devices["n1"].recent))
	}
	if ok, _ := report("n2", 79); !ok {
		t.Error("another node's report was left out")
	}
	now = now.Add(repeatAfter)
	if ok, again := report("n1", 79); !ok || again < 999 {
		t.Errorf("before the sign lapses: %v, %d times more", ok, again)
	}
}

// A flood of devices' reports leaves a bounded trace in the journal, and a
// neighbour's report is written down in the middle of it.
func TestFloodOfDeviceReportsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		for i := range 5000 {
			b.job.agents[1].send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Device{Device: &falconv1.DeviceEvent{
					Device: "n1.g0",
					Fatal:  i%2 == 0,
					Code:   int32(i / 4),
					Text:   strings.Repeat("x", 200),
				}},
			})
		}
		b.job.agents[0].send(&falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Device{
				Device: &falconv1.DeviceEvent{Device: "n0.g0", Fatal: true, Code: 48},
			},
		})
		b.turn()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		devices := b.records()[kindDevice]
		if n := len(devices); n > reportsBurst+1 {
			t.Errorf("%d records of devices", n)
		}
		if !slices.ContainsFunc(devices, func(r journal.Record) bool {
			return strings.Contains(string(r.Body), "n0.g0")
		}) {
			t.Error("the other node's report is missing")
		}
		if n := len(b.records()[kindEvent]); n > 2*linesBurst {
			t.Errorf("%d lines", n)
		}
	})
}

// One node's lines do not use up the others'.
func TestLinesOfOneNodeAreItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		for range 20 * linesBurst {
			b.job.agents[1].send(b.job.rankState("n1", 0))
		}
		b.job.agents[0].send(b.job.rankState("n0", 3))
		b.turn()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, r := range b.records()[kindEvent] {
			for _, n := range []string{"n0", "n1"} {
				if strings.Contains(string(r.Body), "node "+n+" claims rank") {
					count[n]++
				}
			}
		}
		if count["n1"] == 0 || count["n1"] > nodeLinesBurst || count["n0"] != 1 {
			t.Errorf("lines %v", count)
		}
	})
}

func described(rank, world int32) *falconv1.RankState {
	return &falconv1.RankState{
		Rank:  rank,
		World: world,
		Pid:   100 + rank,
		Alive: true,
	}
}

// One node that claims many ranks and a large world does not hide the job of
// the others.
func TestClaimsOfOneNodeDoNotHideTheJob(t *testing.T) {
	j := newJob()
	for r := range int32(4) {
		j.setState(falcon.Node(fmt.Sprint("n", r/2)), described(r, 4))
	}
	taken := 0
	for r := range int32(100_000) {
		if j.setState("bad", described(1000+r, 1<<17)) {
			taken++
		}
	}
	if taken > RanksPerNode || len(j.ranks) > RanksPerNode+4 {
		t.Errorf("%d ranks of one node were taken, %d are known", taken, len(j.ranks))
	}
	if !j.complete() || j.world() != 4 || j.alive != 4 {
		t.Errorf("the job of two nodes: complete %v, world %d, alive %d", j.complete(), j.world(), j.alive)
	}
	s := described(3, 4)
	if !j.setState("n1", s) ||
		j.setState("n1", &falconv1.RankState{
			Rank:  3,
			World: 4,
			Pid:   103,
			Alive: true,
			Comms: make([]*falconv1.Comm, commsMost+1),
		}) {
		t.Error("a rank with too many communicators was taken")
	}
	for r := range int32(4) {
		end := described(r, 4)
		end.Alive = false
		j.setState(falcon.Node(fmt.Sprint("n", r/2)), end)
	}
	if j.world() != 1<<17 || j.complete() {
		t.Errorf("after the job's end: world %d", j.world())
	}
	if j.forgetEnded(); j.on["n0"] != 0 || j.on["bad"] != RanksPerNode {
		t.Errorf("processes by node: %v", j.on)
	}
}

func watchers(h *hub) map[string]int {
	out := map[string]int{}
	for _, w := range h.watchers {
		out[w.who.name]++
	}
	return out
}

// One caller can't take all watches: its own oldest ends.
func TestWatchesAreSharedByTheirCallers(t *testing.T) {
	e := &Engine{hub: newHub(nil, 0)}
	watch := func(name string) *Watcher {
		w, err := e.WatchAs(Actor{Name: name, Role: "viewer"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := watch("eve")
	for range 1000 {
		watch("eve")
	}
	if _, _, err := first.Next(t.Context()); !errors.Is(err, ErrCrowded) ||
		watchers(e.hub)["eve"] != WatchersEach {
		t.Errorf("the first: %v; %v", err, watchers(e.hub))
	}
	ann := watch("ann")
	for i := range 100 {
		for range WatchersEach {
			watch(fmt.Sprint("crowd", i))
		}
	}
	got := watchers(e.hub)
	if len(e.hub.watchers) > WatchersMax || got["ann"] != 1 || got["crowd99"] == 0 {
		t.Errorf("%d watches: %v", len(e.hub.watchers), got)
	}
	e.hub.publish(&falconv1.EventLine{Seq: 1})
	if line, _, err := ann.Next(t.Context()); err != nil || line.GetSeq() != 1 {
		t.Errorf("ann gets %v, %v", line, err)
	}
	first.Close()
	e.hub.close()
	if _, _, err := ann.Next(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}
