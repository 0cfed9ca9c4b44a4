package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/bars"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/learn"
	"github.com/failslow/falcon/backend/pace"
	"github.com/failslow/falcon/backend/triage"
	"github.com/failslow/falcon/backend/vote"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/epoch"
	"github.com/failslow/falcon/recovery/restart"
)

// Kinds of records. Bodies are JSON; fields are only ever added. A new kind, and
// a field without which a record means something else, raises journal.Version:
// an older falcon must refuse the journal and not pass it over.
const (
	kindEpoch       journal.Kind = "epoch"        // epochRecord
	kindReserve     journal.Kind = "reserve"      // reserveRecord
	kindJob         journal.Kind = "job"          // jobRecord, or a delta of one
	kindBaseline    journal.Kind = "baseline"     // baselineRecord
	kindIncident    journal.Kind = "incident"     // falcon.Incident
	kindAction      journal.Kind = "action"       // falcon.Action
	kindOrder       journal.Kind = "order"        // orderRecord
	kindVote        journal.Kind = "vote"         // voteRecord
	kindOutcome     journal.Kind = "outcome"      // outcomeRecord
	kindDecision    journal.Kind = "decision"     // DecisionRecord
	kindPolicy      journal.Kind = "policy"       // policyRecord
	kindEvent       journal.Kind = "event"        // eventRecord
	kindOverhead    journal.Kind = "overhead"     // map of rung to ms
	kindSpeeds      journal.Kind = "speeds"       // speedsRecord
	kindImpact      journal.Kind = "impact"       // mitigate.Impact
	kindValidation  journal.Kind = "validation"   // validationRecord
	kindRestart     journal.Kind = "restart"      // restart.State
	kindRecovery    journal.Kind = "recovery"     // falcon.Recovery, or a delta of one
	kindFence       journal.Kind = "fence"        // fenceRecord
	kindSent        journal.Kind = "sent"         // sentRecord, or a sentDelta
	kindDevice      journal.Kind = "device"       // deviceRecord
	kindEnded       journal.Kind = "ended"        // endedRecord
	kindLaunchEnded journal.Kind = "launch-ended" // launchEndedRecord
	kindWatched     journal.Kind = "watched"      // history.Watched
	kindTriage      journal.Kind = "triage"       // triage.Entry
	kindPace        journal.Kind = "pace"         // list of pace.Stretch
	kindBar         journal.Kind = "bar"          // bars.Entry
	kindClock       journal.Kind = "clock"        // clock.Mark
	kindAside       journal.Kind = "aside"        // asideRecord
)

type epochRecord struct {
	Epoch  uint64        `json:"epoch"`            // of commands
	Engine *learn.Engine `json:"engine,omitempty"` // that starts with it
	Learnt *learntRecord `json:"learnt,omitempty"` // what nodes know, and the journal did not
}

// reserveRecord promises that no command id below Below is given out again.
type reserveRecord struct {
	Below uint64 `json:"below"`
}

// jobRecord is the description of a job epoch.
type jobRecord = epoch.Job

type baselineRecord struct {
	JobEpoch uint64  `json:"job_epoch"`
	Ms       float64 `json:"ms"`
}

type orderRecord struct {
	Order      falcon.Order `json:"order"`
	Command    uint64       `json:"command"`
	DeadlineNs int64        `json:"deadline_unix_ns"`
	// of the job that it was made for; nil in old records
	Generation *uint64     `json:"generation,omitempty"`
	Voted      *voteRecord `json:"voted,omitempty"` // the first vote known; nil while there is none
}

type (
	voteRecord    = vote.First
	outcomeRecord = vote.Outcome
)

// speedsRecord keeps what a located incident's plans are solved with: a
// restarted engine must not need another profile for it.
type speedsRecord struct {
	Incident string            `json:"incident"`
	SelfMs   []float64         `json:"self_ms"`
	Profile  falcon.JobProfile `json:"profile"`
}

// DecisionRecord is the audit line of one decision: who, when (the record's
// own time), from where, on which plan of which job epoch.
type DecisionRecord struct {
	Action   string         `json:"action"`
	Incident string         `json:"incident"`
	PlanHash string         `json:"plan_hash"`
	JobEpoch uint64         `json:"job_epoch"`
	Approve  bool           `json:"approve"`
	Rung     falcon.Rung    `json:"rung,omitempty"`
	Variant  falcon.Variant `json:"variant,omitempty"`
	Verb     string         `json:"verb,omitempty"` // of recoveries; Action is their id
	Reason   string         `json:"reason,omitempty"`
	By       string         `json:"by"`
	Role     string         `json:"role"`
	From     string         `json:"from"`
}

type policyRecord struct {
	Policy  falcon.Policy `json:"policy"`
	Version uint64        `json:"version"`
	File    string        `json:"file,omitempty"` // hash of the configured policy at that time
	By      string        `json:"by"`
	Role    string        `json:"role"`
	From    string        `json:"from"`
}

type eventRecord struct {
	Iteration int64       `json:"iteration"`
	Kind      string      `json:"kind"`
	About     string      `json:"about,omitempty"` // what the line is about, as EventLine has it
	Text      string      `json:"text"`
	Severity  int32       `json:"severity,omitempty"`
	Audit     *auditEntry `json:"audit,omitempty"`
}

// journalState is what the journal says, folded; the live engine and a restart go
// through the same apply.
type journalState struct {
	counters
	job        jobRecord
	jobNodes   []falcon.Node // that it is on, ascending
	baseline   baselineRecord
	incidents  []falcon.Incident // by first mention
	actions    []falcon.Action   // by first mention
	orders     []orderRecord     // without an outcome
	lostOrders []orderRecord     // given up, oldest first; see orderBook.lost
	policy     policyRecord
	decisions  map[string]DecisionRecord // by action, the one that counted
	decidedNs  map[string]int64
	overheads  map[falcon.Rung]float64
	speeds     map[string]speedsRecord    // by incident
	impacts    map[string]mitigate.Impact // by incident
	opened     map[string]opening         // by incident
	tests      []validationRecord         // by first mention
	restart    restart.State
	past       history.Ledger // of incidents that are over
	triage     triage.Book
	bars       bars.Book
	pace       pace.Book              // iteration times of before, for charts
	stamps     map[string]actionTimes // by action

	recoveries []falcon.Recovery // by first mention
	fences     fences
	devices    map[falcon.Node]recovery.Seen // newest fatal report of each node that is still a sign
	sent       []sentRecord                  // newest last
	ended      endedRecord                   // of the newest job epoch that has any

	clock *clock.Mark // newest
	aside []uint64    // records that a person has had passed over

	eventLines
}

// counters are the numbers that only grow.
type counters struct {
	Epoch          uint64 `json:"epoch"`           // of commands
	Reserved       uint64 `json:"reserved"`        // command ids below were promised
	NextOrder      uint64 `json:"next_order"`      // first order id never used
	EventSeq       uint64 `json:"event"`           // of the newest line
	SpeedsOf       uint64 `json:"speeds_of"`       // job epoch of the speeds
	NextIncident   int    `json:"next_incident"`   // INC-0001 has 1
	NextValidation int    `json:"next_validation"` // VAL-0001 has 1
	NextRecovery   int    `json:"next_recovery"`   // REC-0001 has 1
	Generation     uint64 `json:"generation"`      // highest that a recovery has used, or a node has reported
	// highest that a node has reported and that this journal knows nothing of
	Lost uint64 `json:"lost,omitempty"`

	Starts   []learn.Engine `json:"starts,omitempty"` // of engines on this journal, oldest first
	NewestNs int64          `json:"newest_unix_ns"`   // steady time of the newest record
}

type eventLines struct {
	events []*falconv1.EventLine
	places []place // of events, aligned
}

func newJournalState() *journalState {
	return &journalState{
		counters: counters{
			NextOrder:      1,
			NextIncident:   1,
			NextValidation: 1,
			NextRecovery:   1,
		},
		decisions: map[string]DecisionRecord{},
		decidedNs: map[string]int64{},
		speeds:    map[string]speedsRecord{},
		impacts:   map[string]mitigate.Impact{},
		opened:    map[string]opening{},
		triage:    triage.Book{},
		bars:      bars.Book{},
		stamps:    map[string]actionTimes{},
		fences:    newFences(),
		devices:   map[falcon.Node]recovery.Seen{},
	}
}

// record makes a journal record; v is one of the types above, which always
// encode.
func record(now time.Time, kind journal.Kind, v any) journal.Record {
	return journal.Record{
		AtNs: now.UnixNano(),
		Kind: kind,
		Body: encode(v),
	}
}

// foldFunc folds one record of its kind in, or leaves all as it was.
type foldFunc func(*journalState, journal.Record) error

// folded is the fold of a kind whose body one method takes.
func folded[T any](use func(*journalState, T)) foldFunc {
	return foldedWith(func(m *journalState, v T, _ journal.Record) { use(m, v) })
}

// foldedWith is folded for a method that also looks at the record.
func foldedWith[T any](use func(*journalState, T, journal.Record)) foldFunc {
	return func(m *journalState, r journal.Record) error {
		return decodeInto(r, func(v T) { use(m, v, r) })
	}
}

// folds are those of all kinds. A kind that is not here can only come of a damaged
// journal or of a defect, as newer formats are refused: without it memory would say
// something else than what was decided.
var folds map[journal.Kind]foldFunc

// The folds are set at the start: that of a snapshot's part leads back to them.
func init() {
	folds = map[journal.Kind]foldFunc{
		kindEpoch: folded(foldEpoch),
		kindReserve: folded(func(m *journalState, v reserveRecord) {
			m.Reserved = max(m.Reserved, v.Below)
		}),
		kindJob:      (*journalState).foldJob,
		kindBaseline: folded(func(m *journalState, v baselineRecord) { m.baseline = v }),
		kindIncident: foldedWith(func(m *journalState, v falcon.Incident, r journal.Record) {
			m.setIncident(v, r.AtNs)
		}),
		kindAction: foldedWith(func(m *journalState, v falcon.Action, r journal.Record) {
			m.setAction(v, r.AtNs)
		}),
		kindOrder:   folded((*journalState).addOrder),
		kindVote:    folded((*journalState).setVote),
		kindOutcome: folded((*journalState).endOrder),
		kindDecision: foldedWith(func(m *journalState, v DecisionRecord, r journal.Record) {
			m.setDecision(v, r.AtNs)
		}),
		kindPolicy:   (*journalState).foldPolicy,
		kindOverhead: folded(func(m *journalState, v map[falcon.Rung]float64) { m.overheads = v }),
		kindSpeeds: folded(func(m *journalState, v speedsRecord) {
			m.speeds[v.Incident] = v
		}),
		kindImpact: folded((*journalState).setImpact),
		kindWatched: foldedWith(func(m *journalState, v history.Watched, r journal.Record) {
			m.past.Watch(r.AtNs, v)
		}),
		kindTriage: folded(func(m *journalState, v triage.Entry) {
			m.triage.Apply(v)
		}),
		kindBar: folded(func(m *journalState, v bars.Entry) {
			m.bars.Apply(v)
		}),
		kindPace: (*journalState).foldPace,
		kindEvent: foldedWith(func(m *journalState, v eventRecord, r journal.Record) {
			m.addEvent(v, r)
		}),
		kindValidation: folded((*journalState).setValidation),
		kindRestart:    folded(func(m *journalState, v restart.State) { m.restart = v }),
		kindRecovery:   (*journalState).foldRecovery,
		kindFence: folded(func(m *journalState, v fenceRecord) {
			m.fences.apply(v, m.job.Processes)
		}),
		kindSent: (*journalState).foldSent,
		kindEnded: folded(func(m *journalState, v endedRecord) {
			m.ended.addRanks(v)
		}),
		kindLaunchEnded: folded(func(m *journalState, v launchEndedRecord) {
			m.restart.NoteEnded(v.Generation, v.Rank)
		}),
		kindClock: folded(func(m *journalState, v clock.Mark) { m.clock = &v }),
		kindAside: folded((*journalState).passOver),
		kindDevice: foldedWith(func(m *journalState, v deviceRecord, r journal.Record) {
			m.setDevice(v, r.AtNs)
		}),
		journal.KindSnapshot: func(*journalState, journal.Record) error { return nil }, // its parts follow
		journal.KindPart: func(m *journalState, r journal.Record) error {
			return m.foldPart(r.Body)
		},
	}
}

// apply folds one record in.
func (m *journalState) apply(r journal.Record) error {
	var err error
	if f, known := folds[r.Kind]; known {
		err = f(m, r)
	} else {
		err = fmt.Errorf(
			"%w: this falcon knows no records of this kind; it is not passed over, as what it says would be forgotten",
			errKind,
		)
	}
	if err != nil {
		return fmt.Errorf("engine: journal record %d (%s): %w", r.Seq, r.Kind, err)
	}
	m.NewestNs = max(m.NewestNs, r.AtNs)
	return nil
}

// passOver takes a person's consent in.
func (m *journalState) passOver(v asideRecord) {
	m.aside = keepNewest(append(m.aside, v.Records...), asideMost)
}

// errKind is wrapped by an error about a kind of records.
var errKind = errors.New("engine: unknown kind")

// foldPolicy refuses a policy that this falcon would not have taken: under it,
// it is not known what may be done without a person.
func (m *journalState) foldPolicy(r journal.Record) error {
	var v policyRecord
	if err := json.Unmarshal(r.Body, &v); err != nil {
		return err
	}
	if err := CheckPolicy(v.Policy); err != nil {
		return err
	}
	m.policy = v
	return nil
}

func decodeInto[T any](r journal.Record, use func(T)) error {
	var v T
	if err := json.Unmarshal(r.Body, &v); err != nil {
		return err
	}
	use(v)
	return nil
}

// setJob also drops speeds that other processes had: they are listed by rank.
func (m *journalState) setJob(v jobRecord) {
	m.job, m.jobNodes = v, v.Placement.SortedNodes()
	if v.Epoch != m.SpeedsOf {
		clear(m.speeds)
		m.SpeedsOf = v.Epoch
	}
}

func (m *journalState) setIncident(v falcon.Incident, atNs int64) {
	if !v.Open() {
		delete(m.speeds, v.ID) // nothing is planned for it any more
	}
	was, _ := m.incident(v.ID)
	isNew := replaceOrAppend(&m.incidents, v, func(x falcon.Incident) string { return x.ID })
	if isNew {
		m.NextIncident = numberAfter(m.NextIncident, "INC-", v.ID)
		m.opened[v.ID] = opening{
			occurrence: occurrence{atNs: atNs},
			epoch:      m.job.Epoch,
			job:        m.past.Open(),
		}
	} else {
		m.opened[v.ID] = m.opened[v.ID].again(was, v, atNs)
	}
	if !isNew && isBack(was, v) {
		m.past.Reopen(v.ID)
	}
	m.closePast(v, atNs)
	if isNew && len(m.incidents) > incidentsKept {
		m.forgetOldest()
	}
}

// setDecision keeps the decision that counted: an undo is in the audit, and in the action.
func (m *journalState) setDecision(v DecisionRecord, atNs int64) {
	if v.Verb != verbUndo {
		m.decisions[v.Action], m.decidedNs[v.Action] = v, atNs
	}
}

func (m *journalState) setImpact(v mitigate.Impact) {
	m.impacts[v.Incident] = v
	m.past.SetLost(v.Incident, v.ImpactMs)
}

// incidentsKept bounds the incidents in memory; the journal keeps them all.
const incidentsKept = 512

// forgetOldest drops the oldest closed incident with everything about it. An
// incident closes when its actions are undone.
func (m *journalState) forgetOldest() {
	i := slices.IndexFunc(m.incidents, func(v falcon.Incident) bool {
		return v.State == falcon.IncidentClosed
	})
	if i < 0 {
		return
	}
	id := m.incidents[i].ID
	m.incidents = slices.Delete(m.incidents, i, i+1)
	m.actions = slices.DeleteFunc(m.actions, func(a falcon.Action) bool {
		if a.Incident == id {
			delete(m.decisions, a.ID)
			delete(m.decidedNs, a.ID)
			delete(m.stamps, a.ID)
		}
		return a.Incident == id
	})
	delete(m.impacts, id)
	delete(m.speeds, id)
	delete(m.opened, id)
	delete(m.triage, id)
}

func (m *journalState) impactList() []mitigate.Impact {
	out := make([]mitigate.Impact, 0, len(m.impacts))
	for _, v := range m.incidents {
		if cost, ok := m.impacts[v.ID]; ok {
			out = append(out, cost)
		}
	}
	return out
}

func (m *journalState) setAction(v falcon.Action, atNs int64) {
	m.stamps[v.ID] = m.stamps[v.ID].after(v, atNs)
	replaceOrAppend(&m.actions, v, func(x falcon.Action) string { return x.ID })
}

func (m *journalState) actionIndex(id string) int {
	return slices.IndexFunc(m.actions, func(x falcon.Action) bool { return x.ID == id })
}

func (m *journalState) addOrder(v orderRecord) {
	m.orders = append(m.orders, v)
	m.NextOrder = max(m.NextOrder, v.Order.ID+1)
}

func (m *journalState) setVote(v voteRecord) {
	for i := range m.orders {
		if m.orders[i].Order.ID == v.Order {
			m.orders[i].Voted = &v
		}
	}
}

// endOrder ends an order. One that was given up is kept for a while: ranks that
// were not heard may have agreed on it.
func (m *journalState) endOrder(v outcomeRecord) {
	for _, o := range m.orders {
		if o.Order.ID == v.Order && v.Failed != "" {
			m.lostOrders = keepNewest(append(m.lostOrders, o), lostMax)
		}
	}
	has := func(o orderRecord) bool { return o.Order.ID == v.Order }
	m.orders = slices.DeleteFunc(m.orders, has)
	if v.Failed == "" {
		m.lostOrders = slices.DeleteFunc(m.lostOrders, has)
	}
}

// EventsMax bounds the lines that are kept for consoles.
const EventsMax = 1024

func (m *journalState) addEvent(v eventRecord, r journal.Record) {
	m.EventSeq++
	line := &falconv1.EventLine{
		Seq:       m.EventSeq,
		AtUnixNs:  r.AtNs,
		Iteration: v.Iteration,
		Kind:      v.Kind,
		About:     v.About,
		Text:      v.Text,
		Severity:  v.Severity,
		Audit:     v.Audit.proto(),
	}
	if len(m.events) >= EventsMax {
		m.events = append(m.events[:0], m.events[len(m.events)-EventsMax/2:]...)
		m.places = append(m.places[:0], m.places[len(m.places)-EventsMax/2:]...)
	}
	m.events = append(m.events, line)
	m.places = append(m.places, place{r.Seq, r.Hash})
}

func (m *journalState) incident(id string) (falcon.Incident, bool) {
	for _, v := range m.incidents {
		if v.ID == id {
			return v, true
		}
	}
	return falcon.Incident{}, false
}

// unfinished lists the incidents that a restarted detector must know of.
func (m *journalState) unfinished() []falcon.Incident {
	var out []falcon.Incident
	for _, v := range m.incidents {
		if v.State != falcon.IncidentClosed {
			out = append(out, v)
		}
	}
	return out
}

// current is the recovery that is not over; nil without one.
func (m *journalState) current() *falcon.Recovery {
	if n := len(m.recoveries); n > 0 && !m.recoveries[n-1].State.Over() {
		return &m.recoveries[n-1]
	}
	return nil
}

func (m *journalState) recovery(id string) (falcon.Recovery, bool) {
	i := slices.IndexFunc(m.recoveries, func(x falcon.Recovery) bool { return x.ID == id })
	if i >= 0 {
		return m.recoveries[i], true
	}
	return falcon.Recovery{}, false
}

func (m *journalState) setRecovery(v falcon.Recovery) {
	m.Generation = max(m.Generation, v.Generation)
	if replaceOrAppend(&m.recoveries, v, func(x falcon.Recovery) string { return x.ID }) {
		m.NextRecovery = numberAfter(m.NextRecovery, "REC-", v.ID)
		m.recoveries = keepNewest(m.recoveries, recoveriesKept)
	}
}
