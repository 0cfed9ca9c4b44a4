package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/agent/relay"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// leave puts the end record of a process there.
func (d *fakeDir) leave(t *testing.T, pid int, end ring.End) (path string) {
	t.Helper()
	path = d.entry(pid).Path + ring.EndedSuffix
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.words = append(d.words, ring.Ended{
		Path:       path,
		UID:        os.Geteuid(),
		End:        end,
		Rank:       5,
		Generation: 3,
		Header: ring.Header{
			PID:    pid,
			Rank:   5,
			World:  8,
			Device: "n1.g0",
		},
	})
	return path
}

// life is one life of the node's agent; several follow each other on one fakeDir.
func life(t *testing.T, dir *fakeDir, ship *fakeShip, during func(a *Agent)) {
	t.Helper()
	cfg := Defaults()
	cfg.Node = "n1"
	cfg.ShmDir = dir.path
	a := New(cfg, Options{Now: time.Now, Directory: dir})
	a.Bind(ship)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	synctest.Wait()
	wait(time.Second)
	if during != nil {
		during(a)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// What ended while no agent looked is reported by the next, with how: by the last
// word, by the mark in a file that was left, or not known.
func TestEndsAcrossARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		first := &fakeShip{}
		for pid := 100; pid < 104; pid++ {
			dir.add(pid, pid-100, "n1.g0")
		}
		life(t, dir, first, nil)
		marked := dir.segs[dir.entry(102).Path]
		word := dir.leave(t, 101, ring.End{AtNs: 1, Status: 0})
		if err := os.Remove(dir.entry(101).Path); err != nil {
			t.Fatal(err)
		}
		marked.set(func() {
			marked.control.Ended = ring.End{AtNs: 1, Status: 4}
		})
		for pid := 101; pid < 104; pid++ { // 103 was killed
			dir.exits[pid].die("")
			dir.hidden = append(dir.hidden, pid)
		}
		dir.stale = []ring.Entry{dir.entry(102), dir.entry(103)}
		second := &fakeShip{}
		life(t, dir, second, nil)
		got := map[int32]string{}
		for _, st := range second.states() {
			if !st.Alive {
				if _, twice := got[st.Rank]; twice {
					t.Errorf("rank %d ended twice", st.Rank)
				}
				got[st.Rank] = st.Exit
			}
		}
		if len(got) != 3 ||
			got[1] != falconv1.ExitedNormally ||
			got[2] != "exited with status 4" ||
			got[3] != "" {
			t.Fatalf("%v", got)
		}
		for _, path := range []string{word, dir.entry(102).Path, dir.entry(103).Path} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s is still there", path)
			}
		}
	})
}

// A process that has left its end record may still write its results: it ends when
// it is gone.
func TestAnEndIsNotReportedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		ship := &fakeShip{}
		dir.add(100, 0, "n1.g0")
		life(t, dir, ship, nil)
		dir.leave(t, 100, ring.End{AtNs: 1, Status: -1})
		if err := os.Remove(dir.entry(100).Path); err != nil {
			t.Fatal(err)
		}
		life(t, dir, ship, func(*Agent) {
			if len(ship.Ends()) != 0 {
				t.Fatal("it has not ended")
			}
		})
		life(t, dir, ship, func(*Agent) { // which another agent sees
			dir.exits[100].die("")
			wait(time.Second)
			ends := ship.Ends()
			if len(ends) != 1 ||
				ends[0].Exit != falconv1.ExitedInOrder ||
				ends[0].Pid != 100 {
				t.Fatalf("%v", ends)
			}
		})
	})
}

// An end that the engine has not acknowledged is sent by the next life again, but
// not where its frame was handed over.
func TestUnacknowledgedEndsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		first := &fakeShip{}
		dir.add(100, 0, "n1.g0")
		life(t, dir, first, func(*Agent) {
			dir.exits[100].die("killed by signal 9 (SIGKILL)")
			wait(2 * time.Second)
		})
		second := &fakeShip{}
		life(t, dir, second, nil)
		if ends := second.Ends(); len(ends) != 1 || ends[0].Exit != "killed by signal 9 (SIGKILL)" {
			t.Fatalf("%v", ends)
		}
		third := &fakeShip{kept: second.kept}
		life(t, dir, third, func(*Agent) {
			if len(third.states()) != 0 {
				t.Fatalf("sent twice: %v", third.states())
			}
			third.mu.Lock()
			third.kept = nil // acknowledged
			third.mu.Unlock()
			wait(time.Second)
		})
		acked := &fakeShip{}
		life(t, dir, acked, nil)
		if len(acked.states()) != 0 {
			t.Fatalf("sent after it was acknowledged: %v", acked.states())
		}
	})
}

// A process that no agent ever followed is reported by its own word, when that is
// this user's.
func TestEndsThatNoAgentFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		ship := &fakeShip{}
		mine := dir.leave(t, 200, ring.End{AtNs: 1, Status: 0})
		other := dir.leave(t, 201, ring.End{AtNs: 1, Status: 0})
		dir.words[1].UID++
		away := dir.leave(t, 202, ring.End{AtNs: 1, Status: 0})
		dir.words[2].Header.Device = "n2.g0"
		life(t, dir, ship, nil)
		want := &falconv1.RankState{
			Rank:       5,
			Device:     "n1.g0",
			Pid:        200,
			World:      8,
			Generation: 3,
			Exit:       falconv1.ExitedNormally,
		}
		if got := ship.states(); len(got) != 1 || !proto.Equal(got[0], want) {
			t.Fatalf("%v", got)
		}
		for path, left := range map[string]bool{mine: false, other: false, away: true} {
			if _, err := os.Stat(path); (err == nil) != left {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// A damaged notebook costs the ends of that time, and nothing else.
func TestADamagedNotebook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newFakeDir(t)
		ship := &fakeShip{}
		dir.add(100, 0, "n1.g0")
		path := filepath.Join(dir.path, followedFile.nameFor("", "n1"))
		if err := os.WriteFile(path, []byte("FALCREL1 and so on"), 0o600); err != nil {
			t.Fatal(err)
		}
		life(t, dir, ship, nil)
		if len(ship.states()) != 1 {
			t.Fatalf("%v", ship.states())
		}
		var again notebook
		again.path = path
		v, err := again.readStates()
		if err != nil ||
			len(v.procs) != 1 ||
			v.procs[0].PID != 100 ||
			v.procs[0].state.GetPid() != 100 ||
			len(v.ends) != 0 {
			t.Fatalf("%v, %v", v, err)
		}
	})
}

func TestNotebookNames(t *testing.T) {
	a := followedFile.nameFor("j", "n1")
	b := followedFile.nameFor("j", "n2")
	if a == b || strings.HasPrefix(a, "falcon.") {
		t.Fatalf("%s and %s", a, b)
	}
}

func FuzzNotebook(f *testing.F) {
	good, err := relay.Encode(
		notebookHead{Version: notebookVersion, Procs: []followed{{PID: 7}}},
		[][]byte{marshalState(&falconv1.RankState{Pid: 7}), marshalState(&falconv1.RankState{Pid: 8})},
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, []byte("x"))
	f.Fuzz(func(t *testing.T, b, part []byte) {
		var head notebookHead
		parts, err := relay.Decode(b, &head)
		if err != nil {
			head = notebookHead{Version: notebookVersion, Procs: make([]followed, len(b)%3)}
		}
		v, err := head.decodeStates(append(parts, part))
		if err == nil && len(v.procs)+len(v.ends) != len(parts)+1 {
			t.Fatalf("%d processes and %d ends of %d parts",
				len(v.procs), len(v.ends), len(parts)+1)
		}
	})
}

// The engine's newest record changes several times a second: by itself it is written once a second.
// Whatever else changes is written at once.
func TestNotebookIsNotWrittenForEachRecord(t *testing.T) {
	n := newNotebook(filepath.Join(t.TempDir(), "notebook"), 0)
	at := time.Unix(100, 0)
	write := func(command, record uint64) {
		t.Helper()
		s := &falconv1.Standing{Epoch: 1, Command: command, Record: record}
		if err := n.writeStates(at, recordedStates{standing: s}); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(command, record uint64) {
		t.Helper()
		v, err := n.readStates()
		if err != nil || v.standing.GetCommand() != command || v.standing.GetRecord() != record {
			t.Fatalf("%v has %v, %v", at, v.standing, err)
		}
	}
	write(1, 10)
	kept(1, 10)
	at = at.Add(recordEvery - time.Millisecond)
	write(1, 11)
	kept(1, 10)
	write(2, 12)
	kept(2, 12)
	write(2, 13)
	kept(2, 12)
	at = at.Add(recordEvery)
	write(2, 14)
	kept(2, 14)
}
