package logs

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon/detect/trace"
)

// Collective summarizes NCCL Inspector's records of one kind of call: a
// communicator, an operation and a size.
type Collective struct {
	Comm  string     `json:"comm"`
	Op    string     `json:"op"`
	Size  string     `json:"size"`  // bytes, or the range in the metrics
	Ranks int        `json:"ranks"` // of the communicator
	Calls int        `json:"calls"` // records in the file
	Us    float64    `json:"median_us"`
	Most  float64    `json:"max_us"`
	GBs   float64    `json:"median_bus_gbs"`
	By    []RankTime `json:"by_rank"` // medians, the shortest first
}

// RankTime is the median of one rank's calls.
type RankTime struct {
	Rank string  `json:"rank"`
	Us   float64 `json:"median_us"`
}

// CollectiveSet is an export of NCCL Inspector.
type CollectiveSet struct {
	Format  string       `json:"format"`
	Calls   int          `json:"calls"`
	Kinds   []Collective `json:"kinds"`
	Remarks []string     `json:"remarks"`
}

const maxKinds = 1 << 16

type collectiveKey struct{ comm, op, size string }

type collectiveTimes struct {
	ranks  int
	us     map[string][]float64 // by rank
	busGBs []float64
}

type collectives struct {
	set    CollectiveSet
	kinds  map[collectiveKey]*collectiveTimes
	order  []collectiveKey
	floats int
}

// ReadCollectives reads NCCL Inspector's JSON or its metrics.
func ReadCollectives(r io.Reader) (CollectiveSet, error) {
	in, err := Open(r)
	if err != nil {
		return CollectiveSet{}, err
	}
	c := collectives{kinds: map[collectiveKey]*collectiveTimes{}}
	o := objects{each: c.addObject, whole: true}
	err = scanLines(in, func(l line) error {
		if m, ok := readMetric(l.text); ok && o.depth == 0 {
			if l.whole {
				return c.addMetric(m)
			}
			return nil
		}
		return o.addLine(l)
	})
	if err != nil {
		return CollectiveSet{}, err
	}
	if c.set.Calls == 0 {
		return CollectiveSet{}, trace.Malformed(0,
			"the file has no calls; give a file that NCCL Inspector writes to NCCL_INSPECTOR_DUMP_DIR")
	}
	c.finish(!o.whole)
	return c.set, nil
}

func (c *collectives) times(k collectiveKey) (*collectiveTimes, error) {
	t := c.kinds[k]
	if t == nil {
		if len(c.order) >= maxKinds {
			return nil, trace.TooLarge("more than %d kinds of calls; give the files of fewer ranks", maxKinds)
		}
		t = &collectiveTimes{us: map[string][]float64{}}
		c.kinds[k] = t
		c.order = append(c.order, k)
	}
	if c.floats++; c.floats > MaxCells {
		return nil, trace.TooLarge("more than %d calls; split the file", MaxCells)
	}
	return t, nil
}

// addObject reads an object of the JSON form, which may include the header.
func (c *collectives) addObject(number, _ int, object []byte) error {
	var o struct {
		Header struct {
			ID    string `json:"id"`
			Rank  int    `json:"rank"`
			Ranks int    `json:"n_ranks"`
		} `json:"header"`
		Perf *struct {
			Op    string  `json:"coll"`
			Bytes float64 `json:"coll_msg_size_bytes"`
			Us    float64 `json:"coll_exec_time_us"`
			GBs   float64 `json:"coll_busbw_gbs"`
		} `json:"coll_perf"`
	}
	if json.Unmarshal(object, &o) != nil {
		return trace.Malformed(number, "the JSON is invalid; fix or remove the line")
	}
	if o.Perf == nil || !(o.Perf.Us >= 0) {
		return nil
	}
	c.set.Format = "NCCL Inspector's JSON"
	t, err := c.times(collectiveKey{trace.Clip(o.Header.ID), trace.Clip(o.Perf.Op), countOf(o.Perf.Bytes)})
	if err != nil {
		return err
	}
	c.set.Calls++
	t.ranks = max(t.ranks, o.Header.Ranks)
	rank := countOf(float64(o.Header.Rank))
	t.us[rank] = append(t.us[rank], o.Perf.Us)
	t.busGBs = append(t.busGBs, o.Perf.GBs)
	return nil
}

func countOf(v float64) string {
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return "?"
	}
	b, _ := json.Marshal(int64(v)) // of a whole number
	return string(b)
}

// addMetric reads a line of the Prometheus format.
func (c *collectives) addMetric(m metric) error {
	isTime := strings.HasSuffix(m.name, "_exec_time_microseconds")
	if !strings.HasPrefix(m.name, "nccl_") ||
		!isTime && !strings.HasSuffix(m.name, "bus_bandwidth_gbs") {
		return nil
	}
	c.set.Format = "NCCL Inspector's metrics"
	comm := m.labels["comm_id"]
	if comm == "" {
		comm = m.labels["comm_name"]
	}
	t, err := c.times(collectiveKey{
		trace.Clip(comm),
		trace.Clip(m.labels["collective"]),
		trace.Clip(m.labels["message_size"]),
	})
	if err != nil {
		return err
	}
	for _, label := range []string{"nranks", "n_ranks"} {
		v := readCell(m.labels[label], false)
		if v.value > 0 && v.value < trace.MaxWorld {
			t.ranks = int(v.value)
		}
	}
	if !isTime {
		t.busGBs = append(t.busGBs, m.value)
		return nil
	}
	rank := m.labels["rank"]
	if rank == "" {
		rank = m.labels["node"] + " " + m.labels["gpu"]
	}
	rank = trace.Clip(rank)
	c.set.Calls++
	t.us[rank] = append(t.us[rank], m.value)
	return nil
}

// finish computes the medians and sorts the kinds by total time.
func (c *collectives) finish(cut bool) {
	for _, k := range c.order {
		t := c.kinds[k]
		one := Collective{
			Comm:  k.comm,
			Op:    k.op,
			Size:  k.size,
			Ranks: t.ranks,
			GBs:   medianOf(t.busGBs),
			By:    []RankTime{},
		}
		var all []float64
		for rank, us := range t.us {
			all = append(all, us...)
			one.By = append(one.By, RankTime{rank, medianOf(us)})
		}
		if len(all) == 0 {
			continue
		}
		one.Calls = len(all)
		one.Us = medianOf(all)
		one.Most = slices.Max(all)
		slices.SortFunc(one.By, func(a, b RankTime) int {
			switch {
			case a.Us < b.Us:
				return -1
			case a.Us > b.Us:
				return 1
			}
			return strings.Compare(a.Rank, b.Rank)
		})
		c.set.Kinds = append(c.set.Kinds, one)
	}
	slices.SortStableFunc(c.set.Kinds, func(a, b Collective) int {
		switch x, y := a.Us*float64(a.Calls), b.Us*float64(b.Calls); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	c.set.Remarks = []string{}
	if cut {
		c.set.Remarks = append(c.set.Remarks, "the last object is incomplete and is ignored")
	}
}

func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
