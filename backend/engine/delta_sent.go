package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
)

// sentDelta is what was sent, by what it differs from the job that the journal
// describes: most commands go to all of its nodes, and mean all of its processes.
type sentDelta struct {
	Of      string                `json:"of"` // ofJob; the first field, by which it is known
	Sent    sentRecord            `json:"sent"`
	Without []falcon.Node         `json:"without,omitempty"` // nodes of the job that are left out
	With    []falcon.Node         `json:"with,omitempty"`    // others
	Ranks   string                `json:"ranks,omitempty"`   // whose processes are those of the job
	Pids    map[falcon.Rank]int32 `json:"pids,omitempty"`    // of the others
}

// sentRecord makes the record of a promise.
func (m *journalState) sentRecord(now time.Time, v sentRecord) journal.Record {
	return record(now, kindSent, m.sentDelta(v))
}

func (m *journalState) sentDelta(v sentRecord) any {
	if len(m.jobNodes) == 0 || v.Nodes == nil || !slices.IsSorted(v.Nodes) {
		return v
	}
	out := sentDelta{Of: ofJob, Sent: v}
	out.Sent.Nodes, out.Sent.Pids = nil, nil
	out.Without = difference(m.jobNodes, v.Nodes)
	out.With = difference(v.Nodes, m.jobNodes)
	if len(out.Without)+len(out.With) >= len(v.Nodes) ||
		len(v.Nodes) != len(m.jobNodes)-len(out.Without)+len(out.With) {
		return v
	}
	var same []falcon.Rank
	for _, r := range sortedKeys(v.Pids) {
		if pid, known := pidOf(m.job, r); known && pid == v.Pids[r] {
			same = append(same, r)
			continue
		}
		if out.Pids == nil {
			out.Pids = map[falcon.Rank]int32{}
		}
		out.Pids[r] = v.Pids[r]
	}
	out.Ranks = rangesText(same)
	return out
}

// difference is what is in a and not in b; both ascend.
func difference(a, b []falcon.Node) (out []falcon.Node) {
	for _, n := range a {
		if _, is := slices.BinarySearch(b, n); !is {
			out = append(out, n)
		}
	}
	return out
}

// pidOf reads a process's name; see processName.
func pidOf(r jobRecord, rank falcon.Rank) (int32, bool) {
	if rank < 0 || int(rank) >= len(r.Processes) {
		return 0, false
	}
	_, rest, _ := strings.Cut(r.Processes[rank], "/")
	text, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.ParseInt(text, 10, 32)
	return int32(pid), err == nil && pid >= 0
}

// foldSent folds a promise in.
func (m *journalState) foldSent(r journal.Record) error {
	if !isDelta(r.Body) {
		return decodeInto(r, m.setSent)
	}
	var d sentDelta
	if err := json.Unmarshal(r.Body, &d); err != nil {
		return err
	}
	v, err := d.whole(m)
	if err == nil {
		m.setSent(v)
	}
	return err
}

func (d *sentDelta) whole(m *journalState) (sentRecord, error) {
	v := d.Sent
	v.Nodes = append(difference(m.jobNodes, d.Without), d.With...)
	slices.Sort(v.Nodes)
	ranks, err := parseRanges(d.Ranks)
	if err != nil {
		return v, err
	}
	if len(ranks)+len(d.Pids) > 0 {
		v.Pids = make(map[falcon.Rank]int32, len(ranks)+len(d.Pids))
	}
	for _, r := range ranks {
		pid, known := pidOf(m.job, r)
		if !known {
			return v, fmt.Errorf("%w: the job has no process of rank %d", errDelta, r)
		}
		v.Pids[r] = pid
	}
	for r, pid := range d.Pids {
		v.Pids[r] = pid
	}
	return v, nil
}
