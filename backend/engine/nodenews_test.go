package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/fleet"
)

// A thousand agents that go together are a handful of lines, one agent a line of its own; a rack
// that goes is named.
func TestAgentsThatGoTogetherAreOneLine(t *testing.T) {
	e, _ := listener(t)
	racks := map[falcon.Node]string{}
	var sessions []*fleet.Session
	for i := range 64 {
		racks[falcon.Node(fmt.Sprintf("n%d", i))] = fmt.Sprintf("r%d", i/32)
	}
	e.oplog.news.racks = racks
	attach := func(n int, at time.Time) {
		s := fleet.NewSession(context.Background(), hello(fmt.Sprintf("n%d", n)).GetHello())
		sessions = append(sessions, s)
		e.handleArrival(arrival{session: s, what: arriveAttach}, at)
	}
	for i := range 64 {
		attach(i, t0)
	}
	e.onTick(t0.Add(500 * time.Millisecond))
	e.onTick(t0.Add(2 * time.Second))
	text := e.lines(t)
	if n := strings.Count(text, "connected"); n != newsOwn+2 ||
		!strings.Contains(text, "the agents of 32 nodes of rack r1 (n32, n33") ||
		!strings.Contains(text, "the agents of 16 nodes of rack r0 (n16, n17") {
		t.Fatalf("%d lines\n%s", n, text)
	}
	e.handleArrival(arrival{session: sessions[3], what: arriveDetach}, t0.Add(5*time.Second))
	if text := e.lines(t); !strings.Contains(text, "2 the agent of node n3 is gone") {
		t.Errorf("one that goes alone:\n%s", text)
	}
	e.oplog.news.racks = nil
	for _, s := range sessions {
		e.handleArrival(arrival{session: s, what: arriveDetach}, t0.Add(8*time.Second))
	}
	e.onTick(t0.Add(10 * time.Second))
	if text := e.lines(t); strings.Count(text, "gone") != 1+newsOwn+1 ||
		!strings.Contains(text, "2 the agents of 47 nodes (n") ||
		!strings.Contains(text, "and 39 more) are gone") {
		t.Errorf("all gone:\n%s", text)
	}
	was := strings.Count(e.lines(t), "connected")
	for i := range 600 { // a crowd that goes on for half a minute
		at := t0.Add(20*time.Second + time.Duration(i)*50*time.Millisecond)
		attach(i%64, at)
		e.onTick(at)
	}
	if n := strings.Count(e.lines(t), "connected") - was; n < newsOwn+4 || n > newsOwn+8 {
		t.Errorf("%d lines in half a minute", n)
	}
}
