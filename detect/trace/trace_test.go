package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// endless never ends, and never breaks a line.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestInputsAreBounded(t *testing.T) {
	if _, err := Calls(endless{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless line: %v", err)
	}
}

func TestCallsReads(t *testing.T) {
	log, err := Calls(strings.NewReader(
		"seq,t_us,op,group,bytes\n0,1.5,all_reduce,dp,1024\n1,3,send,pp,\n2,4,all_reduce,dp,2048\n",
	))
	if err != nil || len(log.Calls) != 3 {
		t.Fatalf("%+v, %v", log, err)
	}
	last := log.Calls[2]
	if last.Op != 0 ||
		last.Comm != 0 ||
		last.Bytes != 2048 ||
		last.TimeNs != 4000 ||
		last.Ordinal != 1 {
		t.Errorf("%+v", last)
	}
	if !slices.Equal(log.Ops, []string{"all_reduce", "send"}) ||
		!slices.Equal(log.Groups, []string{"dp", "pp"}) {
		t.Errorf("%v, %v", log.Ops, log.Groups)
	}
}

func TestCallsRefuses(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":    {"", "no header"},
		"columns":  {"a,b\n1,2\n", "line 1: the header must name t_us and op, and it has a, b"},
		"time":     {"t_us,op\nx,send\n", `line 2: column t_us holds "x"`},
		"far time": {"t_us,op\n1e300,send\n", "line 2: t_us 1e+300 is out of range"},
		"bytes":    {"t_us,op,bytes\n1,send,-5\n", "line 2: bytes -5 is out of range"},
		"short":    {"t_us,op\n1\n", "line 2: 1 columns"},
	} {
		_, err := Calls(strings.NewReader(c.in))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCalls(f *testing.F) {
	f.Add("t_us,op,group,bytes\n1,send,a,5\n")
	f.Fuzz(func(t *testing.T, in string) {
		log, err := Calls(strings.NewReader(in))
		for _, c := range log.Calls {
			if int(c.Op) >= len(log.Ops) ||
				int(c.Comm) >= len(log.Groups) ||
				c.Bytes < 0 {
				t.Fatalf("%+v", c)
			}
		}
		checkSentence(t, err)
	})
}

func checkSentence(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) ||
		strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Fatalf("%q", err)
	}
}

func readWorkers(in, worker, value string) (out []string, err error) {
	_, err = Workers(strings.NewReader(in), worker, value, func(w string, v float64) error {
		out = append(out, fmt.Sprintf("%s=%g", w, v))
		return nil
	})
	return out, err
}

func TestWorkersReads(t *testing.T) {
	for name, c := range map[string]struct {
		in, worker, value string
		want              []string
	}{
		"worker":  {"step,worker,ms\n0,a,5\n0,b,6\n", "", "", []string{"a=5", "b=6"}},
		"rank":    {"rank,ms,note\n3,5,x\n", "", "", []string{"3=5"}},
		"named":   {"who,ms,other\nx,5,6\n", "who", "ms", []string{"x=5"}},
		"several": {"dp,pp,ms\n0,1,5\n", "dp,pp", "", []string{"0/1=5"}},
		"coordinates": {
			"step,dp,pp,tp,step_ms,fwd_compute_ms,bwd_compute_ms,dp_ms\n0,0,0,0,50,1,2,9\n0,1,0,0,50,3,4,9\n0,1,1,0,50,5,6,9\n",
			"",
			"",
			[]string{"dp0/pp0=3", "dp1/pp0=7", "dp1/pp1=11"},
		},
		"no compute": {"dp,ms\n0,5\n1,6\n", "", "", []string{"dp0=5", "dp1=6"}},
		"one place":  {"dp_rank,pp_rank,ms\n2,3,5\n", "", "", []string{"dp2/pp3=5"}},
		"loss last":  {"rank,iter_time_ms,loss\n0,5,2.3\n", "", "", []string{"0=5"}},
		"summed":     {"rank,a,b,c\n0,1,2,4\n", "", "a, c", []string{"0=5"}},
	} {
		got, err := readWorkers(c.in, c.worker, c.value)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct{ in, worker, value, want string }{
		"empty":     {"", "", "", "no rows"},
		"no worker": {"a,b\n1,2\n", "", "", `no column "rank"`},
		"no value":  {"rank,b\n1,2\n", "", "ms", `no column "ms"`},
		"loss":      {"rank,loss\n1,2\n", "", "", "no column says that it is a time, and loss is none"},
		"two times": {
			"rank,iter_time,step_time\n1,2,3\n",
			"",
			"",
			"iter_time, step_time can each be the time",
		},
		"hole":     {"rank,ms\n1,2\n1,\n", "", "", "line 3: column ms is empty"},
		"short":    {"rank,ms\n1,2\n1\n", "", "", "line 3: 1 columns"},
		"overflow": {"rank,a,b\n1,1e308,1e308\n", "", "a,b", "line 2: the sum of the value columns"},
	} {
		_, err := readWorkers(c.in, c.worker, c.value)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzWorkers(f *testing.F) {
	f.Add("step,worker,ms\n0,a,5\n", "", "")
	f.Add("step,dp,pp,compute_ms\n0,0,0,5\n0,0,1,6\n", "", "")
	f.Fuzz(func(t *testing.T, in, worker, value string) {
		_, err := readWorkers(in, worker, value)
		checkSentence(t, err)
	})
}
