package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A job whose GPUs are all slow alike from its first iteration on has no slow rank; its clocks say it.
func TestGPUsThatAreAllSlowAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		run := func(seconds int, mhz uint32) *falconv1.Job {
			for range seconds {
				for _, a := range b.job.agents {
					tele := &falconv1.Telemetry{}
					for _, d := range b.engine.state.job.Placement {
						if string(d.Node()) == a.node {
							tele.Gpus = append(tele.Gpus, &falconv1.Gpu{
								Device:        string(d),
								Model:         "NVIDIA H200\x1b[2J",
								SmClockMhz:    mhz,
								MaxSmClockMhz: 1980,
								Busy:          101,
								SmBusy:        31,
								Gauges:        []uint32{701, 63},
							})
						}
					}
					a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: tele}})
				}
				time.Sleep(time.Second)
			}
			b.turn()
			time.Sleep(time.Second)
			s, err := b.engine.Latest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range s.Ranks.Views() {
				power, _ := falcon.Gauges(v.GetGauges()).Value(falcon.GaugePower)
				if v.GetBusy() != 101 || v.GetSmBusy() != 31 || power != 700 {
					t.Errorf("rank %d: busy %d, SMs %d", v.GetRank(), v.GetBusy(), v.GetSmBusy())
				}
			}
			return s.Reply.GetJob()
		}
		if got := run(30, 990).GetSilicon(); got.GetFound() != nil ||
			got.GetGpus() != int32(len(b.engine.state.job.Placement)) ||
			got.GetClock() != 51 ||
			got.GetHalfTflops() != 989 {
			t.Errorf("after 30 s: %v", got)
		}
		got := run(60, 990).GetSilicon().GetFound()
		if len(got) != 1 ||
			got[0].GetSlow() != falconv1.SiliconSlow_SILICON_SLOW_CLOCKS ||
			!strings.Contains(got[0].GetText(), "at 50 % of their maximum SM clock") {
			t.Errorf("after 90 s: %v", got)
		}
		if got := run(10, 1980).GetSilicon(); got.GetFound() != nil || got.GetClock() != 101 {
			t.Errorf("at full clock: %v", got)
		}
		var lines []string
		for _, text := range b.eventTexts() {
			if strings.Contains(text, "maximum SM clock") {
				lines = append(lines, text)
			}
			if strings.ContainsRune(text, '\x1b') {
				t.Errorf("%q", text)
			}
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[1], "no longer so: ") {
			t.Errorf("lines %q", lines)
		}
		if len(b.incidents().GetIncidents()) != 0 {
			t.Error("an incident was opened on clocks alone")
		}
	})
}

func TestTheNewestMatrixTestCounts(t *testing.T) {
	b := newBench(t)
	b.start()
	w := b.engine.measured.silicon
	add := func(id string, state falcon.ValidationState, ms float64) {
		v := falcon.Validation{
			ID:    id,
			State: state,
			Ask:   falcon.ValidationAsk{GEMMSide: 2048},
		}
		if ms > 0 {
			v.GEMM = []falcon.GEMMResult{{Ms: ms, BestMs: ms, Bits: 16}}
		}
		b.engine.state.tests = append(b.engine.state.tests, validationRecord{Validation: v})
	}
	add("VAL-0001", falcon.ValidationDone, 0.02)
	add("VAL-0002", falcon.ValidationDone, 0.08) // 215 TFLOP/s
	add("VAL-0003", falcon.ValidationDone, 0)    // links alone
	add("VAL-0004", falcon.ValidationFailed, 0.02)
	w.takeTests()
	if w.tested != "VAL-0002" {
		t.Errorf("took %q", w.tested)
	}
}
