package sheet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

func TestNamesFitWholeWords(t *testing.T) {
	for name, want := range map[string]float64{
		"NVIDIA H200": 989, "NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756,
		"NVIDIA A100-SXM4-80GB": 312,
		"NVIDIA A10":            125, "NVIDIA A10G": 0, "NVIDIA L40S": 362,
		"NVIDIA L4": 121, "NVIDIA H20": 148, "NVIDIA GH200 480GB": 990,
		"Tesla V100-SXM2-32GB": 125, "Tesla V100-PCIE-16GB": 112, "": 0,
		"Falcon lab GPU (emulated)": 0, "NVIDIA RTX A1000": 0, "AH200": 0, "H200é": 0,
	} {
		if s, ok := Of(name); s.Half != want || ok != (want > 0) {
			t.Errorf("%q: %v %v, want %v", name, s, ok, want)
		}
	}
}

// eight are GPUs of one model at these clocks of 1980 MHz.
func eight(w *Watch, at time.Time, model string, reasons uint64, mhz ...uint32) []falcon.Device {
	var all []falcon.Device
	for i := range 8 {
		d := falcon.NewDevice("n1", i)
		all = append(all, d)
		w.Read(at, falcon.GPUReading{
			Device:        d,
			Model:         model,
			SMClockMHz:    mhz[i%len(mhz)],
			MaxSMClockMHz: 1980,
			Reasons:       reasons,
			Busy:          101,
			SMBusy:        61,
		})
	}
	return all
}

func TestClocksOfAllAlike(t *testing.T) {
	cases := []struct {
		name    string
		reasons uint64
		mhz     []uint32
		want    []Slow
	}{
		{"healthy", 0, []uint32{1980}, nil},
		{"at the power limit, as usual", falcon.ReasonSwPowerCap, []uint32{1400}, nil},
		{"a low power limit", falcon.ReasonSwPowerCap, []uint32{990}, []Slow{Limited}},
		{"heat", falcon.ReasonHwThermal, []uint32{990}, []Slow{Limited}},
		{"clocks that somebody set", 0, []uint32{1200}, []Slow{Clocks}},
		{"idle", reasonIdle, []uint32{345}, nil},
		{"one of four", 0, []uint32{600, 1980, 1980, 1980}, nil}, // peers show it
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := NewWatch()
			at := time.Unix(1000, 0)
			var got Report
			for s := range 90 {
				now := at.Add(time.Duration(s) * time.Second)
				got = w.Look(now, eight(w, now, "NVIDIA H200", c.reasons, c.mhz...))
				if s < 59 && got.Slow != nil {
					t.Fatalf("found %v after %d s", got.Slow, s)
				}
			}
			if !slices.Equal(got.Slow, c.want) ||
				got.Sheet.Half != 989 ||
				got.GPUs != 8 {
				t.Fatalf("%+v, want %v", got, c.want)
			}
			if p, ok := got.SMBusy.Value(); p != 60 || !ok {
				t.Errorf("SM %v", got.SMBusy)
			}
		})
	}
}

func TestAFindingEnds(t *testing.T) {
	w := NewWatch()
	at := time.Unix(1000, 0)
	step := func(mhz uint32) []Slow {
		at = at.Add(30 * time.Second)
		return w.Look(at, eight(w, at, "", 0, mhz)).Slow
	}
	for range 3 {
		step(990)
	}
	if got := step(990); !slices.Equal(got, []Slow{Clocks}) {
		t.Fatal(got)
	}
	if got := step(1980); got != nil {
		t.Fatal(got)
	}
	if got := step(990); got != nil { // begins again
		t.Fatal(got)
	}
	at = at.Add(time.Hour)
	if got := w.Look(at, []falcon.Device{"n1.g0"}); got.GPUs != 0 || got.Slow != nil {
		t.Fatalf("old readings: %+v", got)
	}
}

func TestMatrixTests(t *testing.T) {
	w := NewWatch()
	at := time.Unix(1000, 0)
	all := eight(w, at, "NVIDIA H200", 0, 1980)
	ms := func(tflops float64) float64 { return 2 * 2048 * 2048 * 2048 / tflops / 1e9 }
	for _, c := range []struct {
		tflops float64
		bits   int
		want   string
	}{
		{50.4, 32, "76 []"},
		{20, 32, "31 [3]"},
		{700, 16, "72 []"},
		{300, 16, "31 [3]"},
		{5000, 16, "101 []"},
	} {
		w.Tested(2048, []falcon.GEMMResult{
			{Ms: 2 * ms(c.tflops), BestMs: ms(c.tflops), Bits: c.bits},
			{Ms: ms(1), Bits: c.bits},
			{Err: "refused", Ms: 1e-9},
		})
		if r := w.Look(at, all); fmt.Sprintf("%d %d", r.Matrix, r.Slow) != c.want {
			t.Errorf("%v: %d %v, want %s", c, r.Matrix, r.Slow, c.want)
		}
	}
	w.Tested(2048, nil) // no test is no news
	if r := w.Look(at, all); r.Matrix == 0 {
		t.Error(r)
	}
	w.Read(at, falcon.GPUReading{Device: "n1.g0", Model: "NVIDIA A100"})
	if r := w.Look(at, all); r.Matrix != 0 || r.Model != "" { // of two kinds: no data sheet
		t.Error(r)
	}
}
