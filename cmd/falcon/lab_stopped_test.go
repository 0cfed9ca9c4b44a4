package main

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// SIGTERM to all ranks, as scancel sends it, is a stop: a person is asked, once, and nothing is started,
// whether or not the job can park. A rank that was killed alone is recovered.
func TestLabStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab runs")
	}
	sc := recoverScenario("stopped", recoverLayouts[1].shape, 1)
	sc.Iterations = 100_000 // it is stopped
	for _, adapter := range []string{"on", "off"} {
		t.Run("adapter_"+adapter, func(t *testing.T) {
			l := startLab(t, sc, "", "--adapter", adapter)
			l.await(200, time.Minute) // its layout is known by then
			began := l.status().RankPids
			for _, pid := range began {
				_ = unix.Kill(pid, unix.SIGTERM) // ended meanwhile is as good
			}
			list := l.awaitRecoveries(func(list []falcon.Recovery) bool {
				return len(list) > 0 && list[0].Together != ""
			})
			time.Sleep(5 * time.Second) // in which policy would start it again
			now := l.awaitRecoveries(func([]falcon.Recovery) bool { return true })
			if len(now) != 1 || now[0].State != falcon.RecoveryProposed {
				t.Errorf("%+v", now)
			}
			if list[0].Together == falcon.EndsUnbegun { // how they ended not every kernel tells
				t.Errorf("all ended, and it means %q", list[0].Together)
			}
			for rank, pid := range l.status().RankPids {
				if pid != began[rank] && pid > 0 {
					t.Errorf("rank %s was started again as process %d", rank, pid)
				}
			}
			_, _ = lab.Ask(l.dir, lab.Request{Op: "stop"}) // its end is that of a job that was stopped
			<-l.ended
		})
	}
}

// awaitRecoveries waits until the list of recoveries is as wanted.
func (l *liveLab) awaitRecoveries(ok func([]falcon.Recovery) bool) []falcon.Recovery {
	l.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out, err := exec.Command(
			binFalcon(l.t),
			"recovery",
			"list",
			"--connect", l.status().Socket,
			"--json",
		).Output()
		var reply struct {
			Recoveries []falcon.Recovery `json:"recoveries"`
		}
		if err == nil && json.Unmarshal(out, &reply) == nil && ok(reply.Recoveries) {
			return reply.Recoveries
		}
		if time.Now().After(end) {
			l.t.Fatalf("%v: %s\n%s", err, out, l.out.String())
		}
	}
}
