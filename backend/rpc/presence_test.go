package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// handClock is moved by the test alone.
type handClock struct{ t time.Time }

func (c *handClock) now() time.Time { return c.t }

func (c *handClock) pass(d time.Duration) {
	c.t = c.t.Add(d)
}

func said(list []*falconv1.Operator) string {
	var parts []string
	for _, o := range list {
		parts = append(parts, fmt.Sprintf("%s/%s/%s/%s",
			o.Name, o.Role, o.Session, o.Attending))
	}
	return strings.Join(parts, " ")
}

func TestPresenceComesAndGoes(t *testing.T) {
	clk := &handClock{time.Unix(1000, 0)}
	p := newPresence(clk.now)
	maria := auth.Identity{
		Role: auth.RoleApprover,
		Name: "maria",
		From: "ssh 10.0.0.7",
	}
	li := auth.Identity{
		Role: auth.RoleViewer,
		Name: "li",
		From: "10.0.0.8",
	}
	p.noteSeen(maria, "", "INC-0001") // a program, not a screen
	if got := said(p.operators()); got != "" {
		t.Errorf("without a session: %s", got)
	}
	p.noteSeen(maria, "a", "")
	clk.pass(time.Second)
	p.noteSeen(li, "a", "INC-0001/S2/1") // the same session name of another caller is another screen
	if got, want := said(p.operators()), "maria/approver/a/ li/viewer/a/INC-0001/S2/1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	clk.pass(time.Second)
	p.noteSeen(maria, "a", "INC-0001/S2/1")
	if got, want := said(p.operators()),
		"li/viewer/a/INC-0001/S2/1 maria/approver/a/INC-0001/S2/1"; got != want {
		t.Errorf("since must be when the attention changed: %s, want %s", got, want)
	}
	clk.pass(presenceLife)
	p.noteSeen(li, "a", "")
	clk.pass(time.Second)
	if got, want := said(p.operators()), "li/viewer/a/"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Nobody fills the table alone, and it never grows beyond its bound.
func TestPresenceIsBounded(t *testing.T) {
	clk := &handClock{time.Unix(1000, 0)}
	p := newPresence(clk.now)
	for i := range 100 {
		p.noteSeen(
			auth.Identity{Name: "flood"},
			fmt.Sprint(i),
			strings.Repeat("x", 5000)+"\x1b[2J\u202e",
		)
	}
	list := p.operators()
	if len(list) != operatorsEach {
		t.Errorf("%d screens of one name", len(list))
	}
	if a := list[0].Attending; len(a) > presenceTextMost || strings.ContainsAny(a, "\x1b\u202e") {
		t.Errorf("attending %q", a)
	}
	for i := range 1000 {
		p.noteSeen(auth.Identity{Name: fmt.Sprint("n", i)}, "s\x1b]0;x\x07", "\xff\u202e")
	}
	if n := len(p.seats); n != operatorsMost {
		t.Errorf("%d screens are held", n)
	}
	clk.pass(presenceLife + 1)
	if p.noteSeen(auth.Identity{Name: "late"}, "s", ""); said(p.operators()) != "late//s/" {
		t.Errorf("who has gone still takes room: %s", said(p.operators()))
	}
}

// Operators see each other through any door, also when nothing else is new.
func TestOperatorsSeeEachOther(t *testing.T) {
	s := newSite(t)
	pull := func(c falconv1.ConsoleClient, q *falconv1.SnapshotRequest) *falconv1.SnapshotReply {
		t.Helper()
		r, err := c.Snapshot(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	local := falconv1.NewConsoleClient(s.dialSocket())
	zoe := falconv1.NewConsoleClient(s.dial(s.issue(auth.RoleViewer, "zoe")))
	first := pull(local, &falconv1.SnapshotRequest{
		Rank:      -1,
		Session:   "here",
		Attending: "INC-0001/S2/1",
	})
	if len(first.Operators) != 1 || first.Operators[0].Session != "here" {
		t.Fatalf("operators %v", first.Operators)
	}
	pull(zoe, &falconv1.SnapshotRequest{
		Rank:      -1,
		Session:   "there",
		Attending: "nothing",
	})
	for range 20 { // the engine may have had news between two pulls
		r := pull(local, &falconv1.SnapshotRequest{
			Rank:         -1,
			Session:      "here",
			KnownVersion: first.Version,
		})
		if len(r.Operators) != 2 {
			t.Fatalf("operators %v, unchanged %v", r.Operators, r.Unchanged)
		}
		if first = r; r.Unchanged {
			break
		}
	}
	if !first.Unchanged {
		t.Error("no pull was unchanged: the case was not seen")
	}
	o := first.Operators
	if said(o) != fmt.Sprintf("zoe/viewer/there/nothing %s/%s/here/", o[1].Name, o[1].Role) {
		t.Errorf("operators %v", o)
	}
}
