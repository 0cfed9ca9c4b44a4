package launch

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// takeover is a standby that was ordered to become a rank, until it says that it has.
type takeover struct {
	standby
	ordered time.Time
	ending  bool // it did not answer, and was killed: an ordinary process follows once it is gone
}

// standbyOrder is what a standby is sent.
type standbyOrder struct {
	Env  map[string]string `json:"env"`  // what its launch adds to the environment that it has
	Args []string          `json:"args"` // script and arguments
	Mark string            `json:"mark"`
}

// standbyReply is what it answers.
type standbyReply struct {
	Ready bool   `json:"ready"`
	Taken string `json:"taken"`
}

// handOver orders a standby that is ready to become a rank of the plan; false where there
// is none. The record names it before it has the order: an agent that is killed meanwhile
// leaves a process that another one finds.
func (l *Launcher) handOver(i int, r Rank) (Proc, bool) {
	l.pool.hearReady(l)
	for {
		k := slices.IndexFunc(l.pool.all, func(s standby) bool { return s.ready })
		if k < 0 {
			return Proc{}, false
		}
		s := l.pool.all[k]
		l.rec.Procs[i] = s.proc
		if err := writeRecord(l.path, l.rec); err != nil {
			return Proc{}, false // the ordinary start says so
		}
		if err := l.sendOrder(s, r); err != nil {
			l.endStandby(k, "it can't be ordered to become a rank: "+err.Error())
			continue
		}
		l.pool.all = slices.Delete(l.pool.all, k, k+1)
		l.pool.taking[i] = &takeover{standby: s, ordered: l.pool.now()}
		l.pool.backoff = 0
		return s.proc, true
	}
}

func (l *Launcher) sendOrder(s standby, r Rank) error {
	p := l.rec.Plan
	args := l.cfg.argumentsFor(p, r)
	at, _ := l.cfg.standbyAt()
	order := standbyOrder{
		Env:  map[string]string{},
		Args: args[at:],
		Mark: l.markValue(p, r),
	}
	had := map[string]bool{}
	for _, kv := range l.standbyEnvironment(os.Environ()) {
		had[kv] = true
	}
	for _, kv := range l.environmentFor(os.Environ(), p, r) {
		if key, value, _ := strings.Cut(kv, "="); !had[kv] {
			order.Env[key] = value
		}
	}
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	log, err := openLog(l.logFileOf(r))
	if err != nil {
		return err
	}
	defer log.Close()
	return unix.Sendmsg(
		s.line,
		text,
		unix.UnixRights(int(log.Fd())),
		nil,
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL,
	)
}

// stepTakeovers follows standbys that were ordered to become ranks. In place of one that
// ends before it has said so, or says nothing, an ordinary process is started.
func (l *Launcher) stepTakeovers() {
	for i, t := range l.pool.taking {
		_, ended := l.ended[t.proc]
		r, open := readReply(t.line)
		switch {
		case r.Taken != "" && !t.ending:
			l.dropTakeover(i)
			l.log.Info(
				"a standby took a rank",
				slog.Int("pid", t.proc.PID),
				slog.Int("rank", l.rec.Plan.Ranks[i].Rank),
			)
		case ended:
			l.replaceTakeover(i, t)
		case !open && !t.ending, l.pool.now().Sub(t.ordered) >= takeWait && !t.ending:
			t.ending = true // it runs nothing of the job: it says so before
			l.sys.Kill(t.proc)
		}
	}
}

func (l *Launcher) dropTakeover(i int) {
	_ = unix.Close(l.pool.taking[i].line)
	delete(l.pool.taking, i)
}

// forgetTakeover leaves a process that is ended with its launch.
func (l *Launcher) forgetTakeover(p Proc) {
	for i, t := range l.pool.taking {
		if t.proc == p {
			l.dropTakeover(i)
		}
	}
}

// endTakeovers ends those that have not said that they are ranks: their launch is over.
func (l *Launcher) endTakeovers() {
	for i, t := range l.pool.taking {
		l.sys.Kill(t.proc)
		l.dropTakeover(i)
	}
}

// replaceTakeover starts an ordinary process in place of a standby that is gone.
func (l *Launcher) replaceTakeover(i int, t *takeover) {
	l.dropTakeover(i)
	l.log.Warn(
		"a standby ended before it had taken its rank: an ordinary process is started",
		slog.Int("pid", t.proc.PID),
	)
	delete(l.ended, t.proc)
	l.rec.Procs[i] = Proc{}
	if l.rec.Ended {
		return
	}
	if err := l.startRanks(); err != nil {
		l.log.Error("can't start an ordinary process in its place", slog.Any("err", err))
	}
}

// readReply takes the next thing that a standby has said; false once it has closed its end.
func readReply(line int) (standbyReply, bool) {
	var r standbyReply
	buf := make([]byte, replyMax)
	n, _, err := unix.Recvfrom(line, buf, unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return r, true
	case err != nil || n == 0:
		return r, false
	}
	if json.Unmarshal(buf[:n], &r) != nil {
		return standbyReply{}, false // it is no standby
	}
	return r, true
}
