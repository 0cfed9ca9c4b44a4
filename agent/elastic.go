package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/elastic"
)

// Parents is what the agent asks and does of elastic agents, which are the processes above those of the job.
type Parents interface {
	Above(worker, parent int) (elastic.Process, error)
	Runs(p elastic.Process) bool
	Below(p elastic.Process) []elastic.Process
	Signal(p elastic.Process, sig unix.Signal) error
}

// restarter is an elastic agent that will start ranks of this node again by itself, as torchrun does with
// --max-restarts.
type restarter struct {
	worker   string // a rank below it
	restarts int
	doubt    error // why it is not ended
	termed   time.Time
	killed   bool
}

// restarters are those that are known to this agent. Before it starts ranks here it ends them: both
// would start the job again, and two would train.
type restarters struct {
	parents Parents
	known   map[elastic.Process]*restarter
	log     *slog.Logger
}

func newRestarters(parents Parents, log *slog.Logger) restarters {
	if parents == nil {
		parents = elastic.System{Proc: "/proc"}
	}
	return restarters{
		parents: parents,
		known:   map[elastic.Process]*restarter{},
		log:     log,
	}
}

// takeUp notes the elastic agent above a process, where one will start it again.
func (rs restarters) takeUp(p *process) {
	declared := p.status.Elastic
	if declared.Restarts == 0 {
		return
	}
	found, err := rs.parents.Above(p.header.PID, declared.Parent)
	if found.PID == 0 || rs.known[found] != nil {
		return
	}
	rs.known[found] = &restarter{
		worker:   p.String(),
		restarts: declared.Restarts,
		doubt:    err,
	}
}

// end has all of them end, with what they have started; left reports that one still runs.
// Each ends its workers itself, and is killed with them once it had its time. The error is of
// one that can't be ended.
func (rs restarters) end(now time.Time, grace time.Duration) (left bool, err error) {
	for _, at := range slices.SortedFunc(maps.Keys(rs.known), func(x, y elastic.Process) int {
		return x.PID - y.PID
	}) {
		r := rs.known[at]
		if !rs.parents.Runs(at) {
			delete(rs.known, at)
			continue
		}
		left = true
		err = errors.Join(err, rs.endOne(at, r, now, grace))
	}
	return left, err
}

func (rs restarters) endOne(at elastic.Process, r *restarter, now time.Time, grace time.Duration) error {
	switch {
	case r.doubt != nil:
		return fmt.Errorf(
			"%s would be started again by an elastic agent with %d restarts left, which is not ended from here: %w; end it yourself, or use --max-restarts 0",
			r.worker, r.restarts, r.doubt,
		)
	case r.termed.IsZero():
		r.termed = now
		rs.log.Warn(
			"ended an elastic agent, as this agent starts its ranks",
			slog.Int("pid", at.PID),
			slog.String("worker", r.worker),
			slog.Int("restarts_left", r.restarts),
		)
		return rs.parents.Signal(at, unix.SIGTERM)
	case !r.killed && now.Sub(r.termed) >= grace:
		r.killed = true
		return rs.kill(at)
	}
	return nil
}

// kill ends one that has not ended in time. It is stopped first, as it might start more meanwhile.
func (rs restarters) kill(at elastic.Process) error {
	err := rs.parents.Signal(at, unix.SIGSTOP)
	below := rs.parents.Below(at)
	err = errors.Join(err, rs.parents.Signal(at, unix.SIGKILL))
	for _, b := range below {
		err = errors.Join(err, rs.parents.Signal(b, unix.SIGKILL))
	}
	return err
}
