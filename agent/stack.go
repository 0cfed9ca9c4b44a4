package agent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/failslow/falcon/agent/internal/procstat"
	"github.com/failslow/falcon/agent/peek"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// standsAfter is how long a rank must have made no call, or its hook been silent, for its stack
// to be read without a person's approval.
const standsAfter = 5 * time.Second

// stackReader reads where a rank's threads stand.
func (q *questions) stackReader(p *falconv1.Peek) (peekRead, string) {
	of := q.said.Of(int(p.GetRank()))
	if len(of) == 0 || of[0].EndedNs != 0 {
		return nil, fmt.Sprintf("no process of rank %d runs here: its last lines may say why", p.GetRank())
	}
	k := of[0]
	if why := q.stillTrains(k.PID); why != "" && !p.GetSure() {
		return nil, fmt.Sprintf(
			"rank %d does not stand still (%s): ask with --sure to read its stack all the same",
			p.GetRank(), why,
		)
	}
	name := cmp.Or(q.signs[k.PID].name, strconv.Itoa(k.PID))
	return func() ([]*falconv1.PeekPart, string) {
		return []*falconv1.PeekPart{
			peek.Python(filepath.Dir(k.Path), name, k.UID),
			peek.Threads(q.proc, k.PID, time.Now),
		}, ""
	}, ""
}

// stillTrains is what speaks against a process standing still, "" = nothing.
func (q *questions) stillTrains(pid int) string {
	st, err := procstat.Read(q.proc, pid)
	if err == nil && (st.State == 'T' || st.State == 't' || st.State == 'D') {
		return ""
	}
	now, known := q.signs[pid]
	switch {
	case !known:
		return "the agent does not follow it"
	case now.paused:
		return "it is held for a test"
	case now.silent >= standsAfter, now.idle >= standsAfter:
		return ""
	}
	return fmt.Sprintf("its newest call was %s ago", now.idle.Round(100*time.Millisecond))
}

// sign is whether a process stands still, at the newest look.
type sign struct {
	silent time.Duration // since its hook was last alive
	idle   time.Duration // since its newest call was entered: it is in it, or in its own code
	paused bool
	name   string // see proof.Claim
}

// noteSigns looks whether the processes stand still.
func (q *questions) noteSigns(processes []*process, monoNs int64) {
	q.signs = map[int]sign{}
	for _, p := range processes {
		c := p.status
		s := sign{
			name:   p.header.Claim.Name(),
			paused: p.seg.Pause().State == ring.PauseQuiet,
			idle:   time.Duration(max(0, monoNs-max(p.tail.Newest(), p.header.StartMonoNs))),
		}
		if c.HeartbeatNs > 0 {
			s.silent = time.Duration(max(0, monoNs-c.HeartbeatNs))
		}
		q.signs[p.header.PID] = s
	}
}
