package read

import (
	"fmt"
	"io"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
	"github.com/failslow/falcon/detect/trace/logs"
	"github.com/failslow/falcon/detect/xidcode"
)

// addCollectives reads NCCL Inspector's export: who is shortest in a collective arrives last.
func (s *Set) addCollectives(input *autopsy.Input, in io.Reader) error {
	set, err := logs.ReadCollectives(in)
	if err != nil {
		return plain(err)
	}
	input.Kind = set.Format
	input.Used = true
	input.Lines = set.Calls
	input.Notes = set.Remarks
	for _, c := range set.Kinds {
		metric := fmt.Sprintf("time in %s of %s bytes, communicator %s", c.Op, c.Size, c.Comm)
		for _, r := range c.By {
			s.facts.Samples = append(s.facts.Samples, autopsy.Sample{
				Metric:    metric,
				Direction: autopsy.LeastWaits,
				By:        "rank",
				Key:       r.Rank,
				Who:       autopsy.Who{Rank: int(whole(r.Rank, -1))},
				Step:      -1,
				Value:     r.Us,
				Source:    autopsy.Source{File: input.Path},
			})
		}
	}
	return nil
}

// addCounters reads dcgm-exporter's metrics or dcgmi dmon's table: clocks are compared.
func (s *Set) addCounters(input *autopsy.Input, in io.Reader) error {
	set, err := logs.ReadCounters(in)
	if err != nil {
		return plain(err)
	}
	input.Kind = set.Format
	input.Used = true
	input.Lines = len(set.Counters)
	input.Notes = set.Remarks
	for _, c := range set.Counters {
		low := strings.ToLower(c.Name)
		if strings.Contains(low, "xid") && c.Last > 0 {
			s.facts.Faults = append(s.facts.Faults, xidFault(c.Device, int(
				c.Last,
			), autopsy.Source{File: input.Path, Text: c.Name}))
			continue
		}
		if !strings.Contains(low, "clock") && !strings.Contains(low, "clk") ||
			strings.Contains(low, "reason") ||
			strings.Contains(low, "event") {
			continue
		}
		s.facts.Samples = append(s.facts.Samples, autopsy.Sample{
			Metric:    c.Name,
			Direction: autopsy.LessIsSlow,
			By:        "device",
			Key:       c.Device,
			Who:       autopsy.Who{Rank: -1, Device: c.Device},
			Step:      -1,
			Value:     c.Mean,
			Source:    autopsy.Source{File: input.Path},
		})
	}
	return nil
}

func xidFault(device string, code int, at autopsy.Source) autopsy.Fault {
	means := xidcode.Of(code)
	x := autopsy.Fault{
		Kind:   "xid",
		Class:  autopsy.Warning,
		Who:    autopsy.Who{Rank: -1, Device: device},
		Source: at,
		Text:   fmt.Sprintf("Xid %d: %s", code, means.Text),
		Advice: means.Advice,
	}
	if means.Fatal {
		x.Class = autopsy.Hardware
	}
	return x
}

// addProfile lets the judge of profile windows have a file of its kind.
func (s *Set) addProfile(input *autopsy.Input, in io.Reader) error {
	input.Kind = "a profile window"
	profile, err := trace.ReadProfile(in)
	if err != nil {
		return plain(err)
	}
	report, err := judge.Profile(profile, peer.Rules{}.WithDefaults())
	if err != nil {
		return plain(err)
	}
	input.Used = true
	v := autopsy.Verdict{
		Kind:       autopsy.KindHealthy,
		Confidence: profileConfidence,
		Source:     autopsy.Source{File: input.Path},
	}
	for _, r := range report.Ranks {
		v.Kind = autopsy.KindSlow
		v.Ranks = append(v.Ranks, int(r.Rank))
		v.Text = append(v.Text, fmt.Sprintf("rank %d computes for %.4g ms, %.2f times its peers",
			r.Rank, r.SelfMs, r.Ratio))
	}
	for _, p := range report.Pairs {
		v.Kind = autopsy.KindSlow
		v.Text = append(v.Text, fmt.Sprintf(
			"from rank %d to rank %d a message takes %.2f times what others take",
			p.From, p.To, p.Ratio,
		))
	}
	for _, g := range report.Groups {
		v.Kind = autopsy.KindSlow
		v.Text = append(v.Text, fmt.Sprintf("%s of ranks %v takes %.2f times what others take",
			g.Op, g.Ranks, g.Ratio))
	}
	s.facts.Verdicts = append(s.facts.Verdicts, v)
	return nil
}

const profileConfidence = 0.6
