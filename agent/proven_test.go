package agent

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/proof"
	"github.com/failslow/falcon/agent/ring"
)

// What was started runs under a hook that can't be read: the launch ends with the reason
// and with what it started, and the answer says that the node is not at fault.
func TestALaunchThatCantBeFollowedEnds(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	onNodeWith(t, launchConfig(), Options{Launch: m}, func(t *testing.T, n *node) {
		n.Command(launchCommand(1, 2, 4))
		wait(time.Second)
		e := n.dir.entry(201)
		e.Unproven = falcon.Unproven{
			Reason:      falcon.UnprovenVersion,
			Rank:        4,
			PID:         201,
			Path:        e.Path,
			HookFormat:  7,
			AgentFormat: 6,
		}
		n.dir.mu.Lock()
		n.dir.unproven = []ring.Entry{e}
		n.dir.mu.Unlock()
		wait(2 * unprovenWait)
		got := n.expect(t, accepted, refused)[1]
		if got.Unproven.GetHookFormat() != 7 || !strings.Contains(got.Detail, "format 7") {
			t.Errorf("%v", got)
		}
		if m.how[201] == "" {
			t.Error("what was started still runs")
		}
	})
}

// A root agent follows the user with the most ranks, while any of them lives; others may
// call themselves what they like.
func TestWhoseTheJobIs(t *testing.T) {
	u := jobUser{uid: -1}
	now := time.Unix(1e6, 0)
	files := func(uids ...int) (live []ring.Entry) {
		for _, uid := range uids {
			live = append(live, ring.Entry{UID: uid})
		}
		return live
	}
	if u.settle(now, nil, nil); u.isForeign(7) {
		t.Error("nobody is known, and yet somebody is foreign")
	}
	if u.settle(now, nil, files(9, 7, 7)); u.isForeign(7) || !u.isForeign(9) {
		t.Errorf("of 9, 7 and 7 the job is %d's", u.uid)
	}
	if u.settle(now.Add(userKept/2), nil, files(9, 9, 9)); u.isForeign(7) {
		t.Error("in the midst of a restart the job is another's")
	}
	if u.settle(now.Add(userKept), nil, files(9)); u.isForeign(9) {
		t.Error("the job is over, and its user keeps it")
	}
	fixed := jobUser{uid: 7, fixed: true}
	if fixed.settle(now, nil, files(9, 9)); !fixed.isForeign(9) {
		t.Error("a user who is set is replaced")
	}
}

// deafExit is a watch that has not heard of its process's end so far.
type deafExit struct{ Exit }

func (deafExit) Gone() <-chan struct{} { return nil }

func (deafExit) Signal(unix.Signal) error {
	return errors.New("it was signalled")
}

// A process that has ended a moment ago is no stranger: nothing is in the way of its end.
func TestAProcessThatHasJustEndedIsNoStranger(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	prover := proof.NewProver("/proc")
	for prover.Alive(cmd.Process.Pid) { // until it waits to be collected
		time.Sleep(time.Millisecond)
	}
	x := &provenExit{
		Exit:   deafExit{},
		prover: prover,
		pid:    cmd.Process.Pid,
		claim:  proof.Claim{PID: cmd.Process.Pid},
	}
	if err := x.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%v", err)
	}
	x.pid, x.claim.PID, x.claim.Start = os.Getpid(), os.Getpid(), 1
	if err := x.Signal(unix.SIGTERM); !errors.Is(err, errStranger) {
		t.Errorf("another process: %v", err)
	}
	_ = cmd.Wait()
}
