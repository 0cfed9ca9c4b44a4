package read

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon/detect/autopsy"
)

// progress gathers what a text's lines say of iterations.
type progress struct {
	file     string
	words    numbers
	series   map[string]*building
	order    []string
	stamped  building // from the times of lines that have a step
	stepAt   int64    // of the newest line that has one
	stepTime time.Time
	at       int64          // the highest of all lines, -1 = none
	newest   int64          // of the newest line
	last     autopsy.Source // the newest line of progress
}

const (
	seriesMost = 256     // different names of values in a file
	pointsMost = 1 << 20 // of a series
)

// building is a series that grows. A very long one has means of neighbours for points.
type building struct {
	meaning meaning
	points  []autopsy.Point
	ranks   int // values that were merged with another one of the same step
	newest  autopsy.Point
	open    bool // the newest may still be merged with another one
	each    int  // values that a point is the mean of, 0 = 1
	part    autopsy.Point
	parts   int
}

// take reads one line.
func (p *progress) take(l *line) bool {
	p.timers(l)
	found := p.words.scan(l.body)
	at := p.stepOf(found, l.body)
	used := false
	for _, v := range found {
		switch {
		case v.what == step:
			continue
		case v.what == partTime || v.what == partRate:
			p.add(l, v, at) // it does not make the line one of progress
			continue
		case at < 0 && v.what == someTime:
			v.what = partTime
			p.add(l, v, at)
			continue
		case at < 0 &&
			v.what != stepTime &&
			v.what != stepRate &&
			v.what != items &&
			v.what != meanItems:
			continue
		}
		used = p.add(l, v, at) || used
	}
	if at >= 0 && (used || !l.time.IsZero()) {
		p.stamp(l, at)
		used = true
	}
	if p.newest = at; used {
		p.at, p.last = max(p.at, at), l.source(p.file)
	}
	return used
}

// timers reads "time (ms) | forward-compute: 31.57 | optimizer: 57.50", as Megatron and DeepSpeed write it.
func (p *progress) timers(l *line) {
	_, rest, ok := strings.Cut(l.body, "time (ms) |")
	if !ok {
		return
	}
	for part := range strings.SplitSeq(rest, "|") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), ": ")
		if v, isNumber := parse(value); ok && isNumber {
			p.add(l, number{meaning{what: partTime, toMs: 1, name: name}, v}, -1)
		}
	}
}

// stepOf is the iteration that a line speaks of, -1 = none: what is named exactly as one comes first.
func (p *progress) stepOf(found []number, body string) int64 {
	best := 3
	at := int64(-1)
	for _, v := range found {
		if v.what != step || v.value > math.MaxInt64/2 {
			continue
		}
		rank := 1
		if v.plain {
			rank = 0
		}
		if rank < best {
			best = rank
			at = int64(v.value)
		}
	}
	switch {
	case best > 0 && p.words.has && strings.Contains(body, "SamplesPerSec="): // DeepSpeed: "epoch/step"
		return whole(p.words.total, -1)
	case best > 0 && p.words.has: // "[100/5005]" beside "Epoch [1]"
		return int64(p.words.frac.value)
	}
	return at
}

func (p *progress) add(l *line, v number, at int64) bool {
	if v.value <= 0 {
		return false
	}
	if v.what == stepRate && v.toMs == 0 {
		v.toMs = 1e3
	}
	key := v.name
	if v.what == partTime || v.what == partRate {
		key += "/part"
	}
	if v.what == stepTime || v.what == stepRate {
		key += "/" + p.words.total
	}
	b := p.series[key]
	if b == nil {
		if len(p.series) >= seriesMost {
			return false
		}
		if p.series == nil {
			p.series = map[string]*building{}
		}
		b = &building{meaning: v.meaning}
		p.series[key] = b
		p.order = append(p.order, key)
	}
	value := v.value
	switch v.what {
	case stepRate, items, meanItems, partRate:
		value = 1 / v.value
	}
	if v.toMs > 0 { // a bar changes from it/s to s/it
		value *= v.toMs
	}
	b.add(autopsy.Point{
		Value:     value,
		Iteration: at,
		Time:      l.time,
		Line:      l.number,
	})
	return true
}

// add takes a point; of the values of several ranks for one iteration the slowest counts.
func (b *building) add(at autopsy.Point) {
	if b.open && at.Iteration >= 0 && b.newest.Iteration == at.Iteration {
		b.ranks++
		b.newest.Value = max(b.newest.Value, at.Value)
		return
	}
	b.close()
	b.newest, b.open = at, true
}

// close keeps the newest point.
func (b *building) close() {
	if !b.open {
		return
	}
	b.open = false
	if b.parts == 0 {
		b.part = b.newest
	} else {
		b.part.Value += b.newest.Value
	}
	if b.parts++; b.parts < b.each {
		return
	}
	b.part.Value /= float64(b.parts)
	b.points = append(b.points, b.part)
	b.parts = 0
	if len(b.points) == pointsMost {
		b.halve()
	}
}

// halve makes one point of two neighbours.
func (b *building) halve() {
	for i := range len(b.points) / 2 {
		p := b.points[2*i]
		p.Value = (p.Value + b.points[2*i+1].Value) / 2
		b.points[i] = p
	}
	b.points = b.points[:len(b.points)/2]
	b.each = 2 * max(1, b.each)
}

// stamp takes the time between two lines that have a step, for each iteration between them.
func (p *progress) stamp(l *line, at int64) {
	if l.time.IsZero() {
		return
	}
	between := l.time.Sub(p.stepTime)
	steps := at - p.stepAt
	if steps > 0 && between > 0 && !p.stepTime.IsZero() {
		ms := float64(between) / 1e6 / float64(steps)
		p.stamped.add(autopsy.Point{
			Value:     ms,
			Iteration: at,
			Time:      l.time,
			Line:      l.number,
		})
	} else if steps == 0 {
		return
	}
	p.stepAt, p.stepTime = at, l.time
}

// preference orders what series are taken.
var preference = []quantity{stepTime, stepRate, someTime, meanTime, items, meanItems, elapsed}

const (
	fewest      = 4    // points of a series
	fewestNamed = 2    // of one that is named as the time of an iteration
	coarse      = 0.02 // share of a value that its last digit is worth: too coarse for small changes
	lessPoints  = 0.3  // of what the longest series has, and a series is something else
)

// series is the one that says most of the iterations, and ok whether there is one.
func (p *progress) result() (s autopsy.Series, ok bool) {
	candidates := p.candidates()
	if len(candidates) == 0 {
		return p.parts()
	}
	b := candidates[0]
	for _, c := range candidates[1:] {
		if b.coarse() && !c.coarse() {
			b = c
		}
	}
	s = autopsy.Series{
		File:   p.file,
		Name:   b.meaning.name,
		Points: b.points,
		Every:  b.every(),
		Why:    b.why(),
	}
	if b.meaning.toMs > 0 {
		s.Unit = "ms"
	}
	return s, true
}

func (p *progress) candidates() []*building {
	var all []*building
	longest := 0
	p.stamped.close()
	for _, key := range p.order {
		p.series[key].close()
		b := p.series[key]
		if b.meaning.what == partTime || b.meaning.what == partRate {
			continue
		}
		if b.meaning.what == elapsed {
			b.toDifferences()
		}
		all = append(all, b)
	}
	if len(p.stamped.points) > 0 {
		p.stamped.meaning = meaning{
			what: items,
			toMs: 1,
			name: "the times of the lines",
		}
		all = append(all, &p.stamped)
	}
	for _, b := range all {
		longest = max(longest, len(b.points))
	}
	all = slices.DeleteFunc(all, func(b *building) bool {
		few := fewest
		if b.meaning.what == stepTime || b.meaning.what == stepRate { // its name leaves no doubt
			few = fewestNamed
		}
		return len(b.points) < few || float64(len(b.points)) < lessPoints*float64(longest)
	})
	slices.SortStableFunc(all, func(a, b *building) int {
		return cmp.Compare(slices.Index(preference, a.meaning.what), slices.Index(preference, b.meaning.what))
	})
	return all
}

// parts is the sum of the parts of an iteration that each line of a text has, where nothing says more.
func (p *progress) parts() (s autopsy.Series, ok bool) {
	var most, first *building
	for _, key := range p.order {
		b := p.series[key]
		isPart := b.meaning.what == partTime || b.meaning.what == partRate
		if isPart && (most == nil || len(b.points) > len(most.points)) {
			most = b
		}
	}
	if most == nil || len(most.points) < partsLeast {
		return s, false
	}
	var named []string
	for _, key := range p.order {
		b := p.series[key]
		if b.meaning != most.meaning &&
			(b.meaning.what != most.meaning.what || b.meaning.toMs != most.meaning.toMs) ||
			!b.beside(most) {
			continue
		}
		if named = append(named, b.meaning.name); first == nil {
			first = b
			continue
		}
		for i := range first.points {
			first.points[i].Value += b.points[i].Value
		}
	}
	s = autopsy.Series{
		File:   p.file,
		Name:   strings.Join(named[:min(len(named), namedParts)], " + "),
		Points: first.points,
		Every:  first.every(),
	}
	s.Why = "no line has the time of an iteration: these are parts of it"
	if first.meaning.toMs > 0 {
		s.Unit = "ms"
	}
	return s, true
}

const (
	partsLeast = 12 // points of a part that stands for the whole
	namedParts = 4
)

// beside reports whether both have a value in the same lines.
func (b *building) beside(other *building) bool {
	return len(b.points) == len(other.points) && b.points[0].Line == other.points[0].Line &&
		b.points[len(b.points)-1].Line == other.points[len(other.points)-1].Line
}

// toDifferences makes times of iterations from the time since the start.
func (b *building) toDifferences() {
	var out []autopsy.Point
	for i := 1; i < len(b.points); i++ {
		was := b.points[i-1]
		is := b.points[i]
		steps := max(1, is.Iteration-was.Iteration)
		if is.Value > was.Value {
			is.Value = (is.Value - was.Value) / float64(steps)
			out = append(out, is)
		}
	}
	b.points = out
}

// coarse reports whether neighbours are equal, or differ by much: the file has too few digits.
func (b *building) coarse() bool {
	least := math.Inf(1)
	same := 0
	for i := 1; i < len(b.points); i++ {
		d := math.Abs(b.points[i].Value/b.points[i-1].Value - 1)
		if d < 1e-9 {
			same++
		} else {
			least = min(least, d)
		}
	}
	return least > coarse && 2*same > len(b.points)
}

// every is how many iterations a point covers, 0 = not known.
func (b *building) every() int {
	var steps []int64
	for i := 1; i < len(b.points) && i < 1000; i++ {
		if d := b.points[i].Iteration - b.points[i-1].Iteration; d > 0 {
			steps = append(steps, d)
		}
	}
	if len(steps) == 0 {
		return 0
	}
	slices.Sort(steps)
	return int(steps[len(steps)/2])
}

func (b *building) why() string {
	what := map[quantity]string{
		stepTime:  "its name says the time of an iteration",
		stepRate:  "iterations per second, turned over",
		someTime:  "the time beside an iteration's number",
		meanTime:  "a mean of iteration times",
		items:     "a rate, turned over: the work of an iteration is taken to be the same",
		meanItems: "a running mean of a rate, turned over",
		elapsed:   "differences of the time since the start",
	}[b.meaning.what]
	if b.meaning.name == "the times of the lines" {
		what = "differences of the times of lines, for each iteration between them"
	}
	if b.ranks > 0 {
		what += fmt.Sprintf("; of several values of one iteration the largest counts (%d merged)", b.ranks)
	}
	return what
}

func medianOf(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
