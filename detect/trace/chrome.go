package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/failslow/falcon"
)

// Bounds on what is kept of traces.
const (
	MaxLanes = 1 << 17 // (file, pid, tid) with events of interest
	MaxCells = 1 << 22 // (lane, step) with computing time
	MaxCalls = 1 << 22 // communication calls; later ones are counted and left out
)

// event is one entry of a trace; times are microseconds.
type event struct {
	Ph   string          `json:"ph"`
	Name string          `json:"name"`
	Cat  string          `json:"cat"`
	Ts   json.Number     `json:"ts"`
	Dur  json.Number     `json:"dur"`
	Pid  json.RawMessage `json:"pid"` // a number or a text
	Tid  json.RawMessage `json:"tid"`
	Args json.RawMessage `json:"args"`
}

// eventArgs are the arguments that identify who did what.
type eventArgs struct {
	Step      loose    `json:"step"`
	Name      word     `json:"name"` // of a metadata event
	Rank      loose    `json:"rank"`
	DPRank    loose    `json:"dp_rank"`
	PPRank    loose    `json:"pp_rank"`
	Stage     loose    `json:"stage"`
	TPRank    loose    `json:"tp_rank"`
	DP        loose    `json:"dp"`
	PP        loose    `json:"pp"`
	TP        loose    `json:"tp"`
	Call      word     `json:"Collective name"`
	Group     word     `json:"Process Group Name"`
	GroupDesc word     `json:"Process Group Description"`
	Ranks     rankList `json:"Process Group Ranks"`
	GroupSize loose    `json:"Group size"`
	In        loose    `json:"In msg nelems"`
	Dtype     word     `json:"dtype"`
}

// chrome gathers the lanes of all files.
type chrome struct {
	file     int
	fileRank int
	world    int
	lanes    map[laneKey]*lane
	names    map[laneKey]string // tid empty: of the process
	steps    map[int]map[string]bool
	ranks    map[int]int // by file, where the file has it
	byName   map[int]int // by file, where its name does
	cells    int
	calls    int
	dropped  int
	groups   map[string]*commGroup
	open     map[laneKey][]openSpan
	opened   int
}

type laneKey struct {
	file     int
	pid, tid string
}

// wholeTrace is the step of events that name none.
const wholeTrace = math.MinInt64

// lane is one row of a trace.
type lane struct {
	place     place
	compute   map[int64]float64 // ms by step
	calls     []commCall
	annotated []commCall // calls from annotations, of use where no kernels are
}

// place is a worker's place in the job; unknown where nothing names it.
type place struct{ rank, dp, pp, tp int }

var nowhere = place{unknown, unknown, unknown, unknown}

// commCall is one communication event.
type commCall struct {
	step      int64
	startMs   float64
	ms        float64
	op        falcon.Op
	bytes     int64
	direction direction
	group     *commGroup // as the event names it, nil when it does not
}

// commGroup is a process group as events describe it.
type commGroup struct {
	id    int
	desc  string
	ranks []int
	size  int
}

// direction distinguishes calls that an event names by their part in training.
type direction uint8

const (
	dirNone     direction = iota
	dirReplicas           // among the replicas of a stage
	dirFromPrev           // a receive from the stage before
	dirFromNext           // a receive from the stage behind
)

func (c *chrome) takeEvent(e *event) error {
	switch e.Ph {
	case "X":
	case "M":
		return c.addMetadata(e)
	case "B":
		return c.beginSpan(e)
	case "E":
		return c.endSpan(e)
	default:
		return nil
	}
	name := strings.ToLower(e.Name)
	cat := strings.ToLower(e.Cat)
	if strings.HasPrefix(name, "profilerstep#") {
		c.addStep(name)
		return nil
	}
	what, dir := classify(name, cat)
	if what == isOther {
		return nil
	}
	var args eventArgs
	if what != isKernel && len(e.Args) > 0 && e.Args[0] == '{' {
		if err := json.Unmarshal(e.Args, &args); err != nil {
			return malformed(0, "the args of event %q: %s", clipField(e.Name), jsonSentence(err))
		}
	}
	l, err := c.laneOf(e)
	if err != nil {
		return err
	}
	l.place.learnFrom(&args)
	ms, start, err := e.durationAndStart()
	if err != nil || !isDuration(ms) {
		return err
	}
	step := int64(wholeTrace)
	if args.Step.set {
		step = args.Step.n
	}
	if what == isCompute || what == isKernel {
		return c.addCompute(l, step, ms)
	}
	return c.addCall(l, what == isAnnotation, name, &args, commCall{
		step:      step,
		startMs:   start,
		ms:        ms,
		direction: dir,
	})
}

// durationAndStart are an event's duration and start in ms.
func (e *event) durationAndStart() (ms, start float64, err error) {
	us, err := e.Dur.Float64()
	if e.Dur == "" {
		us, err = 0, nil
	}
	at, atErr := e.Ts.Float64()
	if e.Ts == "" {
		at, atErr = 0, nil
	}
	if err != nil || atErr != nil || math.Abs(us) > MaxMs || math.Abs(at) > 1e21 {
		return 0, 0, malformed(0, "event %q: ts or dur is out of range", clipField(e.Name))
	}
	return us / 1e3, at / 1e3, nil
}

// traceID is a process or thread, a number or a text.
func traceID(raw json.RawMessage) string {
	return clipField(strings.Trim(string(raw), `"`))
}

func (c *chrome) laneOf(e *event) (*lane, error) {
	k := laneKey{c.file, traceID(e.Pid), traceID(e.Tid)}
	l := c.lanes[k]
	if l == nil {
		if len(c.lanes) >= MaxLanes {
			return nil, fmt.Errorf("%w: more than %d lanes; give fewer files", ErrTooLarge, MaxLanes)
		}
		if c.lanes == nil {
			c.lanes = map[laneKey]*lane{}
		}
		l = &lane{place: nowhere, compute: map[int64]float64{}}
		c.lanes[k] = l
	}
	return l, nil
}

func (c *chrome) addCompute(l *lane, step int64, ms float64) error {
	before, known := l.compute[step]
	if !known {
		if c.cells++; c.cells > MaxCells {
			return fmt.Errorf("%w: more than %d steps over all lanes; give fewer steps",
				ErrTooLarge, MaxCells)
		}
	}
	l.compute[step] = before + ms
	return nil
}

func (c *chrome) addCall(l *lane, annotated bool, name string, args *eventArgs, call commCall) error {
	if c.calls++; c.calls > MaxCalls {
		c.dropped++
		return nil
	}
	call.op, _ = OpOf(string(args.Call))
	if call.op == falcon.OpNone {
		call.op = findOperation(name)
	}
	if args.In.set && args.In.n > 0 && args.In.n < 1<<45 {
		call.bytes = args.In.n * elementBytes(string(args.Dtype))
	}
	call.group = c.groupOf(args)
	if annotated {
		l.annotated = append(l.annotated, call)
	} else {
		l.calls = append(l.calls, call)
	}
	return nil
}

// groupOf is the process group that an event names.
func (c *chrome) groupOf(a *eventArgs) *commGroup {
	if a.Group == "" && len(a.Ranks) == 0 {
		return nil
	}
	key := fmt.Sprint(clipField(string(a.Group)), a.Ranks)
	g := c.groups[key]
	if g == nil {
		if c.groups == nil {
			c.groups = map[string]*commGroup{}
		}
		if len(c.groups) >= MaxLanes {
			return nil
		}
		g = &commGroup{
			id:    len(c.groups) + 1,
			desc:  strings.ToLower(clipField(string(a.GroupDesc))),
			ranks: a.Ranks,
			size:  len(a.Ranks),
		}
		if a.GroupSize.set && a.GroupSize.n > 0 && a.GroupSize.n <= MaxWorld {
			g.size = int(a.GroupSize.n)
		}
		c.groups[key] = g
	}
	return g
}

// addStep notes a step that the profiler marked.
func (c *chrome) addStep(name string) {
	if c.steps == nil {
		c.steps = map[int]map[string]bool{}
	}
	if c.steps[c.file] == nil {
		c.steps[c.file] = map[string]bool{}
	}
	if len(c.steps[c.file]) < MaxCells/MaxLanes*64 {
		c.steps[c.file][clipField(name)] = true
	}
}

// addMetadata keeps the names of processes and threads: they may say who is who.
func (c *chrome) addMetadata(e *event) error {
	k := laneKey{c.file, traceID(e.Pid), traceID(e.Tid)}
	switch e.Name {
	case "process_name", "process_labels":
		k.tid = ""
	case "thread_name":
	default:
		return nil
	}
	var args struct {
		Name   word `json:"name"`
		Labels word `json:"labels"`
	}
	if len(e.Args) == 0 ||
		e.Args[0] != '{' ||
		json.Unmarshal(e.Args, &args) != nil {
		return nil // a name that can't be read names no rank
	}
	if len(c.names) >= 4*MaxLanes {
		return fmt.Errorf("%w: more than %d names of lanes; give fewer files", ErrTooLarge, 4*MaxLanes)
	}
	if c.names == nil {
		c.names = map[laneKey]string{}
	}
	c.names[k] = strings.TrimSpace(c.names[k] + " " + clipToLength(string(args.Name+args.Labels), 200))
	return nil
}

// closeFile notes which rank the file was of: as it said, else as its name does.
func (c *chrome) closeFile(nameRank int) {
	note := func(to *map[int]int, rank int) {
		if rank < 0 || rank >= MaxWorld {
			return
		}
		if *to == nil {
			*to = map[int]int{}
		}
		(*to)[c.file] = rank
	}
	note(&c.ranks, c.fileRank)
	note(&c.byName, nameRank)
}

// learnFrom takes over what an event's arguments say.
func (p *place) learnFrom(a *eventArgs) {
	for _, f := range []struct {
		to   *int
		from loose
	}{
		{&p.rank, a.Rank},
		{&p.dp, a.DPRank},
		{&p.pp, a.PPRank},
		{&p.pp, a.Stage},
		{&p.tp, a.TPRank},
		{&p.dp, a.DP},
		{&p.pp, a.PP},
		{&p.tp, a.TP},
	} {
		if f.from.set && f.from.n >= 0 && f.from.n < MaxWorld {
			*f.to = int(f.from.n)
		}
	}
}

// elementBytes is the size of one element of a type as PyTorch names it.
func elementBytes(dtype string) int64 {
	switch strings.ToLower(dtype) {
	case "double", "long", "int64", "float64", "complexfloat":
		return 8
	case "half", "bfloat16", "short", "int16", "float16":
		return 2
	case "byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2":
		return 1
	}
	return 4
}
