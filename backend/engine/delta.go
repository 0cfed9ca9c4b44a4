package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
)

// Records of recoveries, of the job and of what was sent hold lists of all
// ranks. They are written as what they change of an earlier record: of the same
// recovery, or of the job as its newest record describes it. What an older
// falcon wrote whole is read as it is.

// errDelta is wrapped by what is wrong with such a record.
var errDelta = errors.New("engine: a change that does not fit what it changes")

// ofJob names the newest record of the job as what a change is made from.
const ofJob = "job"

// delta is a record by what it changes.
type delta struct {
	// ofJob, or a recovery's id; the first field, by which it is known
	Of     string                     `json:"of"`
	Set    map[string]json.RawMessage `json:"set,omitempty"`
	Gone   []string                   `json:"gone,omitempty"`
	Lists  map[string]map[int]string  `json:"lists,omitempty"`  // entries by index
	Ranges map[string]string          `json:"ranges,omitempty"` // ranks: "0-15,17"
	Sum    uint32                     `json:"sum"`              // over the lists as they are to be
}

func isDelta(body []byte) bool {
	return bytes.HasPrefix(body, []byte(`{"of":`))
}

// fieldsOf are the encoded fields of a struct, but for those that are written
// as lists.
func fieldsOf(v any, lists ...string) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	if err := json.Unmarshal(encode(v), &out); err != nil {
		panic(fmt.Sprintf("engine: fields of %T: %v", v, err))
	}
	for _, name := range lists {
		delete(out, name)
	}
	return out
}

// change fills in what differs between two sets of fields.
func (d *delta) change(was, is map[string]json.RawMessage) {
	d.Set = map[string]json.RawMessage{}
	for name, v := range is {
		if old, there := was[name]; !there || !bytes.Equal(old, v) {
			d.Set[name] = v
		}
	}
	for _, name := range sortedKeys(was) {
		if _, stays := is[name]; !stays {
			d.Gone = append(d.Gone, name)
		}
	}
}

// merge is the other way: a struct from the fields of an earlier one.
func (d *delta) merge(was map[string]json.RawMessage, into any) error {
	is := maps.Clone(was)
	for _, name := range d.Gone {
		delete(is, name)
	}
	maps.Copy(is, d.Set)
	b, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// diffList notes how a list differs; one that differs in most entries, or has
// another length, is set whole.
func diffList[T ~string](d *delta, name string, was, is []T) {
	changed := map[int]string{}
	for i := range is {
		if len(was) == len(is) && was[i] != is[i] {
			changed[i] = string(is[i])
		}
	}
	switch {
	case is == nil || len(was) != len(is) || 2*len(changed) > len(is):
		d.Set[name] = encode(is)
	case len(changed) > 0:
		if d.Lists == nil {
			d.Lists = map[string]map[int]string{}
		}
		d.Lists[name] = changed
	}
	d.Sum = sumOf(d.Sum, is)
}

// listed is the other way. An unchanged list is shared: what is folded is never
// changed in place.
func listed[T ~string](d *delta, name string, was []T) ([]T, error) {
	if raw, set := d.Set[name]; set {
		var out []T
		err := json.Unmarshal(raw, &out)
		return out, err
	}
	changed := d.Lists[name]
	if len(changed) == 0 {
		return was, nil
	}
	out := slices.Clone(was)
	for i, v := range changed {
		if i < 0 || i >= len(out) {
			return nil, fmt.Errorf("%w: %s has %d entries and entry %d changes", errDelta, name, len(out), i)
		}
		out[i] = T(v)
	}
	return out, nil
}

// castagnoli is the sum that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf adds a list to a sum over lists.
func sumOf[T ~string](sum uint32, in []T) uint32 {
	const most = 32 << 10
	b := append(make([]byte, 0, most+256), '|')
	for _, v := range in {
		if b = append(append(b, v...), 0); len(b) >= most {
			sum = crc32.Update(sum, castagnoli, b)
			b = b[:0]
		}
	}
	return crc32.Update(sum, castagnoli, b)
}

// rangesText lists ranks as ranges, in their order.
func rangesText(ranks []falcon.Rank) string {
	var b strings.Builder
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(ranks[i])))
		if end > i {
			b.WriteString("-" + strconv.Itoa(int(ranks[end])))
		}
		i = end + 1
	}
	return b.String()
}

// parseRanges reads what rangesText wrote; nil for "".
func parseRanges(s string) ([]falcon.Rank, error) {
	if s == "" {
		return nil, nil
	}
	total := 0
	for part := range strings.SplitSeq(s, ",") {
		from, to, err := parseRange(part)
		if total += to - from + 1; err != nil || total > RanksMax {
			return nil, fmt.Errorf("%w: %q are no ranks", errDelta, part)
		}
	}
	out := make([]falcon.Rank, 0, total)
	for part := range strings.SplitSeq(s, ",") {
		for from, to, _ := parseRange(part); from <= to; from++ {
			out = append(out, falcon.Rank(from))
		}
	}
	return out, nil
}

// parseRange reads "4" or "4-7"; both ends belong to it.
func parseRange(s string) (from, to int, err error) {
	first, last, is := strings.Cut(s, "-")
	from, err = strconv.Atoi(first)
	if to = from; err == nil && is {
		to, err = strconv.Atoi(last)
	}
	if err == nil && (from < 0 || to < from || to >= RanksMax) {
		err = errDelta
	}
	return from, to, err
}

// written is what the newest records say, those of a batch under way included:
// what the next ones are changes of.
type written struct {
	recovery *falcon.Recovery
}

func jobDelta(was, is jobRecord) any {
	if was.Epoch == 0 {
		return is
	}
	d := delta{Of: ofJob}
	d.change(jobFields(was), jobFields(is))
	diffList(&d, "processes", was.Processes, is.Processes)
	diffList(&d, "placement", was.Placement, is.Placement)
	diffList(&d, "placement_before", was.Before, is.Before)
	return d
}

// jobFields are a job's, without what is listed by rank.
func jobFields(r jobRecord) map[string]json.RawMessage {
	r.Processes = nil
	r.Placement = nil
	r.Before = nil
	return fieldsOf(r, "processes", "placement", "placement_before")
}

func (d *delta) jobAfter(was jobRecord) (is jobRecord, err error) {
	if err := d.merge(jobFields(was), &is); err != nil {
		return is, err
	}
	var errs [3]error
	is.Processes, errs[0] = listed(d, "processes", was.Processes)
	is.Placement, errs[1] = listed(d, "placement", was.Placement)
	is.Before, errs[2] = listed(d, "placement_before", was.Before)
	if err := errors.Join(errs[:]...); err != nil {
		return is, err
	}
	sum := sumOf(sumOf(sumOf(0, is.Processes), is.Placement), is.Before)
	if sum != d.Sum {
		return is, fmt.Errorf("%w: the job's ranks come to another sum", errDelta)
	}
	return is, nil
}

// foldJob folds a record of the job in.
func (m *journalState) foldJob(r journal.Record) error {
	is, err := foldDelta(r.Body, func(d delta) (jobRecord, error) {
		return d.jobAfter(m.job)
	})
	if err == nil {
		m.setJob(is)
	}
	return err
}

// foldDelta reads a record that may be whole or a change.
func foldDelta[T any](body []byte, of func(delta) (T, error)) (out T, err error) {
	if !isDelta(body) {
		err = json.Unmarshal(body, &out)
		return out, err
	}
	var d delta
	if err := json.Unmarshal(body, &d); err != nil {
		return out, err
	}
	return of(d)
}

// recoveryRecord makes the record of a recovery: by what changes since its last
// one, else of the job that the journal describes.
func (w *written) recoveryRecord(now time.Time, job jobRecord, is falcon.Recovery) journal.Record {
	d := recoveryDelta(job, w.recovery, is)
	w.recovery = &is
	return record(now, kindRecovery, d)
}

// recoveryDelta is a recovery by what it changes of an earlier state of it, or
// of a job.
func recoveryDelta(job jobRecord, was *falcon.Recovery, is falcon.Recovery) delta {
	d := delta{Of: ofJob}
	before := map[string]json.RawMessage(nil)
	placement := job.Placement
	survivors := []falcon.Rank(nil)
	same := was != nil && was.ID == is.ID
	if same {
		d.Of, before, placement, survivors = was.ID, recoveryFields(*was), was.Placement, was.Survivors
	}
	d.change(before, recoveryFields(is))
	diffList(&d, "placement", placement, is.Placement)
	switch {
	case same &&
		slices.Equal(survivors, is.Survivors) &&
		(survivors == nil) == (is.Survivors == nil):
	case len(is.Survivors) == 0:
		d.Set["survivors"] = map[bool]json.RawMessage{
			true:  json.RawMessage("null"),
			false: json.RawMessage("[]"),
		}[is.Survivors == nil]
	default:
		d.Ranges = map[string]string{"survivors": rangesText(is.Survivors)}
	}
	return d
}

// recoveryFields are those of a recovery, without what is listed by rank.
func recoveryFields(v falcon.Recovery) map[string]json.RawMessage {
	v.Placement, v.Survivors = nil, nil
	return fieldsOf(v, "placement", "survivors")
}

func (d *delta) recovery(m *journalState) (is falcon.Recovery, err error) {
	was := falcon.Recovery{RecoveryPlan: falcon.RecoveryPlan{Placement: m.job.Placement}}
	fields := map[string]json.RawMessage{}
	if d.Of != ofJob {
		var known bool
		if was, known = m.recovery(d.Of); !known {
			return is, fmt.Errorf("%w: no recovery %q comes before it", errDelta, d.Of)
		}
		fields = recoveryFields(was)
	}
	if err := d.merge(fields, &is); err != nil {
		return is, err
	}
	if is.Placement, err = listed(d, "placement", was.Placement); err != nil {
		return is, err
	}
	if _, set := d.Set["survivors"]; !set {
		is.Survivors = was.Survivors
		if text, changed := d.Ranges["survivors"]; changed {
			is.Survivors, err = parseRanges(text)
		}
	}
	if sum := sumOf(0, is.Placement); err == nil && sum != d.Sum {
		err = fmt.Errorf("%w: the placement of %s comes to another sum", errDelta, is.ID)
	}
	return is, err
}

// foldRecovery folds a record of a recovery in.
func (m *journalState) foldRecovery(r journal.Record) error {
	is, err := foldDelta(r.Body, func(d delta) (falcon.Recovery, error) {
		return d.recovery(m)
	})
	if err == nil {
		m.setRecovery(is)
	}
	return err
}
