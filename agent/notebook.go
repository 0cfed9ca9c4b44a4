package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/relay"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	notebookVersion = 1
	notebookMost    = 16 << 20
	followedMax     = 1024 // processes of a node that are written down

	// recordEvery is how often the number of the engine's newest record is written, where nothing
	// else has changed: it grows several times a second, and says how far a journal had come.
	recordEvery = time.Second
)

// notebookHead is followed by the newest state of each process, empty where none
// was sent, and by the states of the ends.
type notebookHead struct {
	Version   int        `json:"version"`
	Procs     []followed `json:"procs"`
	Namespace uint64     `json:"pid_ns"` // where the numbers count, 0 = not said
	Standing  []byte     `json:"standing,omitempty"`
}

// followed is a process for certain, and what it takes to report its end
// without having seen it.
type followed struct {
	PID    int    `json:"pid"`
	Born   uint64 `json:"born"` // see Directory
	MadeNs int64  `json:"made"` // its file
	UID    int    `json:"uid"`  // whose file that is
	Path   string `json:"path"`

	state *falconv1.RankState
}

// notebook keeps what the next life of this agent has to know of processes.
type notebook struct {
	path string
	have *recordedStates // what is in the file; nil while that is unknown
	last time.Time       // when it was written
	uid  int             // this agent's

	namespace uint64 // of this agent's numbers of processes

	departed  []*departed           // followed by an earlier life, and not by this one
	endedWell map[launchedRank]bool // who has ended with success, of the newest launch
	failed    bool                  // it can't be written, and that was said
}

func newNotebook(path string, namespace uint64) notebook {
	return notebook{
		path:      path,
		uid:       os.Geteuid(),
		namespace: namespace,
		endedWell: map[launchedRank]bool{},
	}
}

// launchedRank is a rank of a launch.
type launchedRank struct {
	rank       int
	generation uint64
}

// recordedStates is the content of the file. States are the same while their pointers are.
type recordedStates struct {
	procs    []followed
	ends     []*falconv1.RankState
	standing *falconv1.Standing // of engines; generation and order follow from the processes
}

func (n *recordedStates) equals(other *recordedStates) bool {
	if n == nil || !proto.Equal(n.standing, other.standing) {
		return false
	}
	return slices.Equal(n.procs, other.procs) && slices.Equal(n.ends, other.ends)
}

// onRecord is the same with another newest record of the engine's.
func (n *recordedStates) onRecord(number uint64) *recordedStates {
	out := *n
	out.standing = proto.CloneOf(n.standing)
	out.standing.Record = number
	return &out
}

// isCurrent reports whether the file has all that must be there at this time.
func (n *notebook) isCurrent(now time.Time, v *recordedStates) bool {
	switch {
	case n.have.equals(v):
		return true
	case n.have == nil || v.standing == nil || now.Sub(n.last) >= recordEvery:
		return false
	}
	return n.have.equals(v.onRecord(n.have.standing.GetRecord()))
}

// writeStates brings the file up to date.
func (n *notebook) writeStates(now time.Time, v recordedStates) error {
	v.procs = v.procs[:min(len(v.procs), followedMax)]
	if n.isCurrent(now, &v) {
		return nil
	}
	parts := make([][]byte, 0, len(v.procs)+len(v.ends))
	for _, p := range v.procs {
		parts = append(parts, marshalState(p.state))
	}
	for _, e := range v.ends {
		parts = append(parts, marshalState(e))
	}
	head := notebookHead{
		Version:   notebookVersion,
		Procs:     v.procs,
		Namespace: n.namespace,
	}
	head.Standing, _ = proto.Marshal(v.standing) // of plain fields: it can't fail
	sealed, err := relay.Encode(head, parts)
	if err == nil {
		err = relay.Save(n.path, sealed)
	}
	if err == nil {
		n.have = &recordedStates{slices.Clone(v.procs), slices.Clone(v.ends), v.standing}
		n.last = now
	}
	return err
}

func marshalState(st *falconv1.RankState) []byte {
	if st == nil {
		return nil
	}
	b, _ := proto.Marshal(st) // of plain fields: it can't fail
	return b
}

// readStates is what the life before has left; nothing where there is none.
func (n *notebook) readStates() (recordedStates, error) {
	var head notebookHead
	parts, err := relay.Load(n.path, notebookMost, &head)
	if errors.Is(err, fs.ErrNotExist) {
		return recordedStates{}, nil
	}
	if err != nil {
		return recordedStates{}, err
	}
	v, err := head.decodeStates(parts)
	if head.Namespace != 0 && head.Namespace != n.namespace {
		v.procs = nil // their numbers are other processes' here, or nobody's: that is no end
	}
	return v, err
}

func (h notebookHead) decodeStates(parts [][]byte) (recordedStates, error) {
	v := recordedStates{standing: &falconv1.Standing{}}
	if h.Version != notebookVersion || len(h.Procs) > min(len(parts), followedMax) {
		return recordedStates{}, relay.ErrDamaged
	}
	if proto.Unmarshal(h.Standing, v.standing) != nil {
		return recordedStates{}, relay.ErrDamaged
	}
	for i, b := range parts {
		st := &falconv1.RankState{}
		if proto.Unmarshal(b, st) != nil {
			return recordedStates{}, relay.ErrDamaged
		}
		switch {
		case i >= len(h.Procs):
			v.ends = append(v.ends, st)
		case len(b) > 0:
			h.Procs[i].state = st
		}
	}
	v.procs = h.Procs
	return v, nil
}

// resumeFollowed takes up what an earlier life of this agent has followed: processes, and engines. An
// end that the engine had not acknowledged is sent again, unless its frame was handed over.
func (n *notebook) resumeFollowed(a *Agent) {
	v, err := n.readStates()
	if err != nil {
		a.log.Warn(
			"can't read which processes the agent followed before: what ended meanwhile is not reported",
			slog.Any("err", err),
		)
		return
	}
	a.executor.Resume(v.standing)
	for _, p := range v.procs {
		n.departed = append(n.departed, &departed{followed: p})
	}
	again := a.ship.Ends()
	for _, st := range v.ends {
		if !slices.ContainsFunc(again, func(s *falconv1.RankState) bool {
			return s.Pid == st.Pid
		}) {
			a.ship.Send(rankFrame(st))
		}
	}
}

// saveFollowed writes down what is followed now. A disk that is full costs no more than
// that: it is said once.
func (n *notebook) saveFollowed(now time.Time, a *Agent) {
	var procs []followed
	for _, p := range a.processes.allProcesses() {
		if !p.dead {
			procs = append(procs, p.followedRecord())
		}
	}
	for _, p := range n.departed {
		procs = append(procs, p.followed)
	}
	err := n.writeStates(now, recordedStates{procs, a.ship.Ends(), a.executor.Standing()})
	if err != nil && !n.failed {
		a.log.Warn(
			"can't write down which processes are followed: ends during a restart of the agent will not be reported",
			slog.Any("err", err),
		)
	}
	n.failed = err != nil
}

// saveLast writes all of it, at the end of the agent.
func (n *notebook) saveLast(now time.Time, a *Agent) {
	n.last = time.Time{}
	n.saveFollowed(now, a)
}

func (p *process) followedRecord() followed {
	return followed{
		PID:    p.header.PID,
		Born:   p.born,
		MadeNs: p.header.StartMonoNs,
		UID:    p.uid,
		Path:   p.path,
		state:  p.reported.state,
	}
}

// departed is a process that was followed by an earlier life of this agent and has
// no file to be followed by any more.
type departed struct {
	followed
	record *ring.Ended // its own, nil while there is none
}

// followAgain reports whether a process is followed again.
func (n *notebook) followAgain(p *process) {
	n.departed = slices.DeleteFunc(n.departed, func(o *departed) bool {
		return o.Path == p.path && o.MadeNs == p.header.StartMonoNs
	})
}

// reportUnseenEnds reports what has ended while no agent looked, each by its own end record
// where there is one.
func (n *notebook) reportUnseenEnds(a *Agent) {
	words, bad, err := a.dir.Ended()
	if err != nil {
		return // the scan says it
	}
	for path, why := range bad {
		if !a.found.ignored[path] {
			a.log.Warn("ignored a file", slog.Any("err", why))
		}
		a.found.ignored[path] = true
	}
	for _, w := range words {
		n.takeEndRecord(a, w)
	}
	n.departed = slices.DeleteFunc(n.departed, func(p *departed) bool {
		return p.reportIfEnded(a)
	})
}

// takeEndRecord takes up the end record of a process. One that is followed keeps it until
// it has gone.
func (n *notebook) takeEndRecord(a *Agent, w ring.Ended) {
	base := w.Path[:len(w.Path)-len(filepath.Ext(w.Path))]
	for _, p := range n.departed {
		if p.Path == base && p.MadeNs == w.Header.StartMonoNs && p.UID == w.UID {
			p.record = &w
			return
		}
	}
	gone, known := a.dir.Ends(w.Header)
	if !known {
		a.found.ignored[w.Path] = true // another agent's, which sees the process
	}
	if !gone ||
		a.processes.processAt(base) != nil ||
		elsewhere(a.node, w.Header.Device) ||
		a.found.ignored[w.Path] {
		return
	}
	if st := strayState(w); w.UID == n.uid && w.Rank >= 0 { // of others anybody could claim anything
		a.sendEnd(st)
		a.log.Info(
			"a training process ended that no agent has followed",
			slog.Int("pid", w.Header.PID),
			slog.String("how", st.Exit),
		)
	}
	a.removeFile(ring.Entry{Path: w.Path})
}

// elsewhere reports whether a device is of another node, where several share a directory.
func elsewhere(node falcon.Node, device string) bool {
	return device != "" && falcon.Device(device).Node() != node
}

func strayState(w ring.Ended) *falconv1.RankState {
	return &falconv1.RankState{
		Rank:               int32(w.Rank),
		Device:             w.Header.Device,
		Pid:                int32(w.Header.PID),
		Exit:               describeEnd(w.End),
		World:              int32(max(w.Header.World, 0)),
		Tp:                 int32(w.TP),
		Dp:                 int32(w.DP),
		Pp:                 int32(w.PP),
		Generation:         w.Generation,
		PlacementOrder:     w.Place,
		PlacementIteration: w.PlaceIteration,
		Committed:          commitment(w.Committed),
		RejoinedGeneration: w.Rejoined,
	}
}

// reportIfEnded reports the end of a process that is gone; false while it runs.
func (p *departed) reportIfEnded(a *Agent) bool {
	if now, runs := a.dir.Born(p.PID); runs && now == p.Born {
		return false // its training is over, or its file can't be read for the moment
	}
	how := p.exitReason(a.dir)
	if p.state != nil {
		st := proto.CloneOf(p.state)
		st.Alive, st.Exit = false, how
		p.updateState(st)
		a.sendEnd(st)
	}
	a.log.Info(
		"a training process ended while no agent looked",
		slog.Int("pid", p.PID),
		slog.String("how", how),
	)
	a.removeFile(ring.Entry{Path: p.Path + ring.EndedSuffix})
	return true
}

// exitReason is how the process ended, by its end record, or by the mark in its file.
func (p *departed) exitReason(dir Directory) string {
	if p.record != nil {
		return describeEnd(p.record.End)
	}
	return describeEnd(p.leftBehind(dir))
}

// updateState brings a state, which an earlier agent has sent, up to the process's end.
func (p *departed) updateState(st *falconv1.RankState) {
	if p.record == nil {
		return
	}
	st.Committed = commitment(p.record.Committed)
	st.RejoinedGeneration = max(st.RejoinedGeneration, p.record.Rejoined)
	if p.record.Place > st.PlacementOrder && p.record.Rank >= 0 {
		st.Rank = int32(p.record.Rank)
		st.PlacementOrder = p.record.Place
		st.PlacementIteration = p.record.PlaceIteration
	}
}

// leftBehind is the mark in the file of a process that could not take it back.
func (p followed) leftBehind(dir Directory) ring.End {
	seg, err := dir.Open(p.Path)
	if err != nil {
		return ring.End{}
	}
	defer func() { _ = seg.Close() }()
	if seg.Header().StartMonoNs != p.MadeNs {
		return ring.End{}
	}
	return seg.Control().Ended
}
