package logs

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon/detect/trace"
)

// MaxCounters bounds the counters of one file: devices times kinds.
const MaxCounters = 1 << 17

// Counter is one counter of one device over a file.
type Counter struct {
	Device string  `json:"device"` // "n1 GPU 3"
	Name   string  `json:"name"`   // "DCGM_FI_DEV_SM_CLOCK", "SMCLK"
	Count  int     `json:"count"`
	Min    float64 `json:"min"`
	Mean   float64 `json:"mean"`
	Max    float64 `json:"max"`
	Last   float64 `json:"last"`
}

// CounterSet is a DCGM export.
type CounterSet struct {
	Format   string    `json:"format"`
	Devices  int       `json:"devices"`
	Counters []Counter `json:"counters"`
	Remarks  []string  `json:"remarks"` // devices that differ from the others, and Xids
}

// counters collects the counters of a file.
type counters struct {
	set     CounterSet
	at      map[[2]string]int
	devices map[string]bool
	columns []string // of dcgmi dmon
}

// ReadCounters reads dcgm-exporter's metrics or dcgmi dmon's table.
func ReadCounters(r io.Reader) (CounterSet, error) {
	in, err := Open(r)
	if err != nil {
		return CounterSet{}, err
	}
	c := counters{at: map[[2]string]int{}, devices: map[string]bool{}}
	if err := scanLines(in, c.addLine); err != nil {
		return CounterSet{}, err
	}
	if len(c.set.Counters) == 0 {
		return CounterSet{}, trace.Malformed(0,
			"the file has no DCGM counters; give the output of curl HOST:9400/metrics or of dcgmi dmon")
	}
	c.set.Devices = len(c.devices)
	c.finish()
	return c.set, nil
}

// isMonitorHeader reports whether a line is dcgmi dmon's header.
func isMonitorHeader(l string) bool {
	fields := strings.Fields(strings.TrimPrefix(l, "#"))
	return strings.HasPrefix(l, "#") && len(fields) > 1 && fields[0] == "Entity"
}

func (c *counters) addLine(l line) error {
	if isMonitorHeader(l.text) {
		c.columns = strings.Fields(strings.TrimPrefix(l.text, "#"))[1:]
		c.set.Format = "dcgmi dmon"
		return nil
	}
	m, ok := readMetric(l.text)
	if ok && strings.HasPrefix(m.name, "DCGM_") && l.whole {
		c.set.Format = "dcgm-exporter"
		return c.addValue(deviceOf(m.labels), m.name, m.value)
	}
	if len(c.columns) > 0 {
		return c.addSample(l)
	}
	return nil
}

func deviceOf(labels map[string]string) string {
	name := "GPU " + labels["gpu"]
	if host := labels["Hostname"]; host != "" {
		name = host + " " + name
	}
	if slice := labels["GPU_I_ID"]; slice != "" {
		name += "/" + slice
	}
	return trace.Clip(name)
}

// addSample reads a row of dcgmi dmon: an entity of two words and its values.
func (c *counters) addSample(l line) error {
	fields := strings.Fields(l.text)
	if len(fields) != len(c.columns)+2 || !l.whole {
		return nil
	}
	for i, name := range c.columns {
		v := readCell(fields[i+2], false)
		if v.bad || v.date || math.IsNaN(v.value) {
			continue
		}
		if err := c.addValue(trace.Clip(fields[0]+" "+fields[1]), trace.Clip(name), v.value); err != nil {
			return err
		}
	}
	return nil
}

func (c *counters) addValue(device, name string, v float64) error {
	key := [2]string{device, name}
	i, known := c.at[key]
	if !known {
		if i = len(c.set.Counters); i >= MaxCounters {
			return trace.TooLarge("more than %d counters; give the file of fewer devices", MaxCounters)
		}
		c.at[key] = i
		c.devices[device] = true
		c.set.Counters = append(c.set.Counters, Counter{
			Device: device,
			Name:   name,
			Min:    v,
			Max:    v,
		})
	}
	k := &c.set.Counters[i]
	k.Count++
	k.Min = min(k.Min, v)
	k.Max = max(k.Max, v)
	k.Last = v
	k.Mean += (v - k.Mean) / float64(k.Count)
	if math.IsInf(k.Mean, 0) || math.IsNaN(k.Mean) {
		k.Mean = v
	}
	return nil
}

// Counters that get remarks.
var (
	xidCounters   = []string{"DCGM_FI_DEV_XID_ERRORS", "XIDER", "XID"}
	clockCounters = []string{"DCGM_FI_DEV_SM_CLOCK", "SMCLK"}
	tempCounters  = []string{"DCGM_FI_DEV_GPU_TEMP", "TMPTR", "GPUTMP"}
)

// finish sorts the counters and remarks on devices.
func (c *counters) finish() {
	slices.SortStableFunc(c.set.Counters, func(a, b Counter) int {
		return strings.Compare(a.Name, b.Name)
	})
	c.set.Remarks = []string{}
	for _, k := range c.set.Counters {
		if slices.Contains(xidCounters, k.Name) && k.Max != 0 {
			c.set.Remarks = append(c.set.Remarks, fmt.Sprintf(
				"%s: Xid %g was reported (the counter keeps the last one)",
				k.Device, k.Max,
			))
		}
	}
	const slower, hotter = 0.9, 1.15
	c.compare(clockCounters, func(v, median float64) bool { return v < slower*median },
		"mean SM clock %.4g MHz, %.2f x the median of %d GPUs")
	c.compare(tempCounters, func(v, median float64) bool { return v > hotter*median },
		"mean temperature %.4g °C, %.2f x the median of %d GPUs")
}

// compare remarks on devices whose mean differs from the median of at least three.
func (c *counters) compare(names []string, differs func(v, median float64) bool, text string) {
	const least = 3
	var means []float64
	for _, k := range c.set.Counters {
		if slices.Contains(names, k.Name) {
			means = append(means, k.Mean)
		}
	}
	if len(means) < least {
		return
	}
	slices.Sort(means)
	median := means[len(means)/2]
	if median <= 0 {
		return
	}
	for _, k := range c.set.Counters {
		if slices.Contains(names, k.Name) && differs(k.Mean, median) {
			c.set.Remarks = append(c.set.Remarks,
				k.Device+": "+fmt.Sprintf(text, k.Mean, k.Mean/median, len(means)),
			)
		}
	}
}
