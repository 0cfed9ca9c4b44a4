package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/detect/passes"
)

// Bounds of automatic validations, and of what is kept of them.
const (
	PerHourDefault  = 6
	CoolDownDefault = 20
	// of a request whose moment has not come; the detector waits 15 s for an answer
	askPatience    = 10 * time.Second
	asksMax        = 4   // requests of the detector that wait; of operators one
	testsKept      = 128 // validations in memory; the journal keeps them all
	ripeIterations = 4   // counts are compared over three whole ones
)

func (v Validation) machine() validate.Config {
	return validate.Config{
		Life:              v.Life,
		CollectiveTimeout: v.CollectiveTimeout,
		GEMMSide:          v.GEMMSide,
		Repeats:           v.Repeats,
		MessageBytes:      v.MessageBytes,
	}
}

// validationQueue holds what waits to be tested, begins one validation at a time
// when its moment has come, and ends the wait with a reason otherwise. What an
// operator asked for comes before the detector's requests.
type validationQueue struct {
	*shared

	obstacle func(now time.Time, p pendingAsk) (why string, passing bool)
	released func(now time.Time) // what has made way for a request may go on
	changed  func()              // what consoles see is new

	machine *validate.Machine
	asks    []pendingAsk // of the detector, waiting for their moment
	request *request     // of an operator, waiting for its moment; nil = none
	asking  asking       // who asked for the one in progress
	number  int          // newest that was given out
}

// start begins; obstacle has found nothing.
func (vq *validationQueue) start(now time.Time, id string, ask falcon.ValidationAsk, who Actor) {
	comms := vq.job.comms(vq.state.job.Layout)
	members := make([]validate.Member, vq.job.world())
	for r := range members {
		p := vq.job.ranks[falcon.Rank(r)]
		nic, _ := nicOn(p.node, p.state.GetNic())
		members[r] = validate.Member{
			Device: p.device,
			NIC:    nic,
			Comms:  comms[falcon.Rank(r)],
		}
	}
	vq.asking = asking{
		who:   who,
		at:    vq.det.Steady().Iteration,
		epoch: vq.state.job.Epoch,
	}
	vq.machine.Step(now, validate.Begin{
		ID:       id,
		Ask:      ask,
		Members:  members,
		Emulated: vq.job.emulated,
		Own:      vq.state.ownTimes(now),
	})
}

// nextID names a validation; the record of its beginning says the same.
func (vq *validationQueue) nextID() string {
	vq.number = max(vq.number+1, vq.state.NextValidation)
	return fmt.Sprintf("VAL-%04d", vq.number)
}

// restore releases what an engine before this one held, and ends
// what had not come so far.
func (vq *validationQueue) restore(now time.Time) {
	for _, t := range vq.state.tests {
		if t.Validation.State.Over() {
			if t.HeldUntilNs > now.UnixNano() {
				vq.machine.Step(now, validate.HeldOn{Until: time.Unix(0, t.HeldUntilNs)})
			}
			continue
		}
		if t.Pause == 0 || vq.machine.Active() {
			vq.refused(now, t, "the engine was started again before the job was held")
			continue
		}
		vq.asking = asking{
			who:   Actor{Name: t.By, Role: t.Role, From: t.From},
			at:    t.Asked,
			epoch: t.JobEpoch,
		}
		vq.machine.Step(now, validate.Recover{
			Validation: t.Validation,
			Pause:      t.Pause,
			Nodes:      t.Nodes,
		})
	}
}

// digestValidation persists what the validation wants persisted, and once it
// is over has the result for the detector and lets waiting orders go.
func (e *Engine) digestValidation(now time.Time, v validate.Ready, r *decidedRound) {
	r.tests = v.Commands
	if v.Persist != nil {
		who := e.validations.asking
		rec := validationRecord{
			Validation: *v.Persist,
			Pause:      v.Pause,
			JobEpoch:   who.epoch,
			Asked:      who.at,
			By:         who.who.Name,
			Role:       who.who.Role,
			From:       who.who.From,
		}
		if !v.HeldUntil.IsZero() {
			rec.HeldUntilNs = v.HeldUntil.UnixNano()
		}
		if v.Pause != 0 {
			rec.Nodes = e.cluster.jobNodes()
		}
		e.batch.addRecords(record(now, kindValidation, rec))
	}
	for _, n := range v.Notes {
		e.oplog.logf("validation", n.Severity, n.About, "%s", n.Text)
	}
	if v.Over {
		r.steps = append(r.steps, func() {
			e.det.Step(now, detect.Validated{Validation: *v.Persist})
			if e.validations.tryRequest(now); !e.validations.machine.Active() {
				e.delivery.resume(now)
			}
		})
	}
}

// testItem is a validation's command in the outbox.
func testItem(c validate.Command) outbox.Item {
	return outbox.Item{
		Class:    testCommand,
		To:       []outbox.To{{Node: c.Node, ID: c.ID}},
		Deadline: c.Deadline,
		About:    c,
		Body: func(falcon.Node) *falconv1.Command {
			if c.Test != nil {
				return &falconv1.Command{Body: &falconv1.Command_Test{Test: c.Test}}
			}
			return &falconv1.Command{Body: &falconv1.Command_Pause{Pause: c.Pause}}
		},
	}
}

// validationRecord is a validation as it was when it began, before the job
// was held, and when it was over with all its results.
type validationRecord struct {
	Validation falcon.Validation `json:"validation"`
	Pause      uint64            `json:"pause,omitempty"` // what a restart has to let go
	Nodes      []falcon.Node     `json:"nodes,omitempty"` // where
	JobEpoch   uint64            `json:"job_epoch"`
	// HeldUntilNs is until when ranks may be held though it is over: see validate.Ready.
	HeldUntilNs int64  `json:"held_until_ns,omitempty"`
	Asked       int64  `json:"asked_iteration"`
	By          string `json:"by"`
	Role        string `json:"role"`
	From        string `json:"from"`
}

// asking is who asked for the validation in progress, and when.
type asking struct {
	who   Actor
	at    int64
	epoch uint64
}

func (m *journalState) setValidation(v validationRecord) {
	if replaceOrAppend(&m.tests, v, func(x validationRecord) string { return x.Validation.ID }) {
		m.NextValidation = numberAfter(m.NextValidation, "VAL-", v.Validation.ID)
		m.tests = keepNewest(m.tests, testsKept)
	}
}

// ownTimesFor is for how long a link's earlier time is compared with.
const ownTimesFor = 24 * time.Hour

// ownTimes are the least times of every direction in earlier validations, of those
// that were judged and fine, else of those that were not judged. Of a validation
// that was cut short those do not count that could not be compared: the others of
// their class are what is missing.
func (m *journalState) ownTimes(now time.Time) passes.Own {
	type direction struct {
		from, to falcon.Device
		bytes    int64
	}
	least := map[direction]passes.Earlier{}
	for _, t := range m.tests {
		v := t.Validation
		if now.Sub(time.Unix(0, v.AtNs)) > ownTimesFor {
			continue
		}
		for _, l := range v.Links {
			if l.Err != "" ||
				l.Slow ||
				!(l.Ms > 0) ||
				l.Unjudged == falcon.TooShort ||
				v.State != falcon.ValidationDone && !(l.BaseMs > 0) {
				continue
			}
			k := direction{l.FromDevice, l.ToDevice, l.Bytes}
			is := passes.Earlier{
				Ms:    l.Ms,
				From:  v.ID,
				Fine:  l.Unjudged == "" && l.BaseMs > 0,
				Known: true,
			}
			old := least[k]
			if !old.Known ||
				is.Fine && !old.Fine ||
				is.Fine == old.Fine && is.Ms < old.Ms {
				least[k] = is
			}
		}
	}
	return func(from, to falcon.Device, bytes int64) passes.Earlier {
		return least[direction{from, to, bytes}]
	}
}

// opening is when an incident was first written and in which job epoch, when its fault
// was over, and the number of the job in the history.
type opening struct {
	occurrence

	epoch   uint64
	job     uint64
	firstNs int64      // onset of the first occurrence, 0 = there is one
	before  occurrence // the one before the newest
}

// occurrence is one time of an incident.
type occurrence struct {
	atNs   int64
	overNs int64 // 0 = it lasts
}

// named lists the culprits of incidents that are over, oldest first.
func (m *journalState) named() []detect.Named {
	var out []detect.Named
	for _, v := range m.incidents {
		if v.State != falcon.IncidentClosed {
			continue
		}
		at := m.opened[v.ID]
		n := detect.Named{
			Incident: v.ID,
			At:       time.Unix(0, at.atNs),
			Cause:    v.Verdict.Cause,
		}
		if at.epoch != m.job.Epoch {
			n.Job = fmt.Sprintf("epoch %d", at.epoch)
		}
		for _, d := range v.Verdict.Devices {
			n := n
			n.Device = d
			out = append(out, n)
		}
		for _, l := range v.Verdict.Links {
			n := n
			n.Link = l
			out = append(out, n)
		}
	}
	return out
}

// dropSilent ends a validation one of whose nodes says nothing any more: the job
// would be held for it until a deadline, and a held job does not show that it
// waits for a dead node.
func (vq *validationQueue) dropSilent(now time.Time) {
	if !vq.machine.Active() {
		return
	}
	for _, n := range vq.nodes.Nodes() {
		if n.Beat != nil && n.Connected() && n.Age(now) > 3*vq.cfg.beatPeriod()/2 {
			vq.machine.Step(now, validate.Lost{Node: n.Name})
		}
	}
}
