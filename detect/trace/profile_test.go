package trace

import (
	"errors"
	"strings"
	"testing"
)

func TestReadProfileTakesBothShapes(t *testing.T) {
	p, err := ReadProfile(strings.NewReader(`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,2],"groups":[
		{"dimension":"DP","ranks":[0,1],"op":"nccl:_all_gather_base","bytes":8,"durations_ms":[1,2]},
		{"dimension":"dp","ranks":[0,1],"op":"all_reduce","bytes":8,"internode":true,"durations_ms":[[1,2],[3,4]]}],
		"healthy":{"self_ms":[1,1]}}`))
	if err != nil ||
		len(p.Groups) != 2 ||
		len(p.Groups[0].Calls) != 1 ||
		len(p.Groups[1].Calls) != 2 ||
		p.Groups[1].Calls[1][0] != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	if p.Groups[0].Op.String() != "allgather" ||
		p.Groups[0].Dimension != "dp" ||
		!p.Groups[1].Internode ||
		p.Healthy == nil ||
		p.Healthy.SelfMs[1] != 1 {
		t.Errorf("%+v", p)
	}
}

func TestReadProfileRefuses(t *testing.T) {
	group := func(fields string) string {
		return `{"layout":{"tp":1,"dp":2,"pp":1},"groups":[{` + fields + `}]}`
	}
	for in, want := range map[string]string{
		"":                "breaks off",
		`{"layout":`:      "breaks off",
		"step,ms":         "no JSON",
		`[1,2]`:           "the document can't be a array",
		"\x80\x04\x95abc": "pickle",
		`{"groups":[]}`:   `no "layout"`,
		`{"layout":{"tp":1,"dp":0,"pp":1},"self_ms":[1]}`:                                        "must each be at least 1",
		`{"layout":{"tp":1,"dp":2,"pp":1}}`:                                                      "nothing to compare",
		`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1]}`:                                        "1 numbers for 2 ranks",
		`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,0]}`:                                      "self_ms of rank 1 is 0",
		`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,1e999]}`:                                  "self_ms can't be a number 1e999",
		`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,NaN]}`:                                    "no JSON at byte",
		group(`"dimension":"xx","ranks":[0,1],"op":"allreduce","durations_ms":[1,1]`):            `dimension "xx"`,
		group(`"dimension":"dp","ranks":[0,1],"op":"\u001b[2J","durations_ms":[1,1]`):            `op "?[2J"`,
		group(`"dimension":"dp","ranks":[0],"op":"allreduce","durations_ms":[1]`):                "at least two",
		group(`"dimension":"dp","ranks":[0,2],"op":"allreduce","durations_ms":[1,1]`):            "rank 2 is not in",
		group(`"dimension":"dp","ranks":[1,1],"op":"allreduce","durations_ms":[1,1]`):            "is listed twice",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":[1]`):              "1 durations for 2 members",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":[[1,1],[1,-1]]`):   "a duration of rank 1 is -1",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":"x"`):              "a list of numbers",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce"`):                                 "no durations_ms",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","bytes":-1,"durations_ms":[1,1]`): "bytes -1",
		"{\"layout\":" + strings.Repeat("[", 20000):                                              "",

		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":[1,1],"starts_ms":[[1,1],[1,1]]`): "starts_ms of 2 calls for durations_ms of 1",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":[1,1],"starts_ms":[1]`):           "1 starts for 2 members",
		group(`"dimension":"dp","ranks":[0,1],"op":"allreduce","durations_ms":[1,1],"starts_ms":[1,-1]`):        "a start of rank 1 is -1",
	} {
		_, err := ReadProfile(strings.NewReader(in))
		if !errors.Is(err, ErrMalformed) ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.80q: %v", in, err)
		}
	}
	for _, in := range []string{
		`{"layout":{"tp":1000000000,"dp":1000000000,"pp":1000000000},"self_ms":[1]}`,
	} {
		if _, err := ReadProfile(strings.NewReader(in)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if _, err := ReadProfile(endless{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless: %v", err)
	}
}

func FuzzReadProfile(f *testing.F) {
	f.Add(`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,2],"groups":[{"dimension":"dp","ranks":[0,1],"op":"allreduce","bytes":8,"durations_ms":[[1,2]]}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ReadProfile(strings.NewReader(in))
		for _, g := range p.Groups {
			for _, call := range g.Calls {
				if err == nil && len(call) != len(g.Ranks) {
					t.Fatalf("%+v", g)
				}
			}
		}
		checkSentence(t, err)
	})
}
