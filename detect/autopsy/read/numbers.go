package read

import (
	"math"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace/column"
)

// quantity is what a number in a line is.
type quantity uint8

const (
	nothing  quantity = iota
	stepTime          // of one iteration
	stepRate          // iterations per second
	someTime          // a duration beside a step
	meanTime
	items     // tokens, samples or examples per second
	meanItems // a running mean of it
	partTime  // of a part of an iteration, or of something that may be one
	partRate  // of a part
	elapsed   // time since the start
	step      // the iteration's number
)

// meaning is what stands beside a number.
type meaning struct {
	what  quantity
	toMs  float64 // factor to milliseconds of a time, 0 = the unit is not known
	name  string  // for people
	plain bool    // the name is exactly that of an iteration
}

// number is one number of a line with what it means.
type number struct {
	meaning
	value float64
}

// numbers finds the numbers of a line that mean something. It remembers what words mean,
// as lines repeat them.
type numbers struct {
	known map[string]meaning
	found []number
	frac  number // n of the first "n/m" in the line, a step where nothing else is one
	has   bool
	total string // m of it: bars within each other have different ones
}

const (
	leftBytes  = 40
	rightBytes = 16
	knownMost  = 1 << 16 // words that are remembered: a hostile file may never repeat one
)

// scan finds them; the result is valid until the next line.
func (n *numbers) scan(s string) []number {
	n.found = n.found[:0]
	n.has = false
	n.total = ""
	end := 0 // of the number before
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			continue
		}
		if i > 0 && isWord(s[i-1]) { // part of a name
			for i+1 < len(s) && (isWord(s[i+1]) || s[i+1] == '.') {
				i++
			}
			continue
		}
		from := i
		for i+1 < len(s) &&
			(isDigit(s[i+1]) || s[i+1] == '.' || s[i+1] == ',' && thousands(s[i+1:]) || exponent(s, i+1)) {
			i++
		}
		token := s[from : i+1]
		// a clock
		if i+1 < len(s) && s[i+1] == ':' && i+2 < len(s) && isDigit(s[i+2]) {
			for i+1 < len(s) && (isDigit(s[i+1]) || s[i+1] == ':' || s[i+1] == '.') {
				i++
			}
			end = i + 1
			continue
		}
		n.add(s, end, from, i+1, token)
		end = i + 1
	}
	return n.found
}

func (n *numbers) add(s string, before, from, to int, token string) {
	left := s[max(before, from-leftBytes):from]
	right := s[to:min(len(s), to+rightBytes)]
	if rest, ok := strings.CutPrefix(right, "/"); ok && !n.has && startsWithDigit(rest) {
		if v, ok := parse(token); ok {
			n.frac = number{meaning{what: step, name: "the count of the line"}, v}
			n.has = true
			n.total = leadingDigits(strings.TrimLeft(rest, " "))
		}
	}
	m := n.meaning(left, right)
	if m.what == nothing {
		return
	}
	v, ok := parse(token)
	if ok && (from == 0 || s[from-1] != '-' || m.what == step) {
		n.found = append(n.found, number{m, v})
	}
}

func leadingDigits(s string) string {
	end := 0
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return s[:end]
}

func startsWithDigit(s string) bool {
	s = strings.TrimLeft(s, " ")
	return s != "" && isDigit(s[0])
}

func parse(token string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimRight(token, ".,"), ",", ""), 64)
	return v, err == nil && !math.IsInf(v, 0) && v >= 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// thousands reports whether a comma groups digits: three follow it, and no more.
func thousands(s string) bool {
	return len(s) >= 4 &&
		isDigit(s[1]) &&
		isDigit(s[2]) &&
		isDigit(s[3]) &&
		(len(s) == 4 || !isDigit(s[4]))
}

func exponent(s string, i int) bool {
	if s[i] == '+' || s[i] == '-' {
		return i > 1 && (s[i-1] == 'e' || s[i-1] == 'E') && isDigit(s[i-2])
	}
	return (s[i] == 'e' || s[i] == 'E') &&
		i+1 < len(s) &&
		(s[i+1] == '+' || s[i+1] == '-') &&
		isDigit(s[i-1])
}

// meaning is what the words around a number say.
func (n *numbers) meaning(left, right string) meaning {
	name := nameOf(left)
	unit := unitOf(right)
	if name == "" && unit == "" {
		return meaning{}
	}
	key := name + "\x00" + unit
	if m, ok := n.known[key]; ok {
		return m
	}
	m := understood(name, unit)
	if len(n.known) < knownMost {
		if n.known == nil {
			n.known = map[string]meaning{}
		}
		n.known[strings.Clone(key)] = m
	}
	return m
}

// nameOf is the name that ends where a number begins, "" where something else than a name does.
func nameOf(left string) string {
	left = strings.TrimRight(left, " \t:=\"'[")
	if i := strings.LastIndexAny(left, "|,;{}[]\t<>\""); i >= 0 {
		left = left[i+1:]
	}
	left = strings.TrimLeft(left, " '-%")
	if strings.HasPrefix(left, "(") || strings.HasSuffix(left, "(") {
		return ""
	}
	return left
}

// unitOf is the unit that begins where a number ends.
func unitOf(right string) string {
	right = strings.TrimLeft(right, " ")
	for i := range len(right) {
		if c := right[i]; !isWord(c) && c != '/' {
			return strings.TrimRight(right[:i], "/")
		}
	}
	return right
}

// units behind a number.
var (
	perStep = map[string]float64{
		"s/it": 1e3, "ms/step": 1, "s/step": 1e3, "sec/step": 1e3, "sec/batch": 1e3,
		"s/batch": 1e3, "ms/batch": 1,
		"s/iter": 1e3, "ms/iter": 1, "sec/iter": 1e3, "ms/it": 1, "us/step": 1e-3, "seconds/step": 1e3,
	}
	rates = map[string]bool{
		"it/s":        true,
		"iter/s":      true,
		"iters/s":     true,
		"steps/s":     true,
		"step/s":      true,
		"batch/s":     true,
		"batches/s":   true,
		"it/sec":      true,
		"iter/sec":    true,
		"steps/sec":   true,
		"batches/sec": true,
		"ups":         true,
	}
	itemRates = map[string]bool{
		"samples/sec":  true,
		"samples/s":    true,
		"examples/sec": true,
		"examples/s":   true,
		"tok/s":        true,
		"tok/sec":      true,
		"tokens/s":     true,
		"tokens/sec":   true,
		"images/sec":   true,
		"img/s":        true,
		"imgs/s":       true,
		"images/s":     true,
		"tokens/s/gpu": true,
		"seq/s":        true,
		"wps":          true,
		"tps":          true,
		"words/s":      true,
		"frames/s":     true,
	}
	durations = map[string]float64{
		"ms": 1, "s": 1e3, "sec": 1e3, "secs": 1e3, "seconds": 1e3, "us": 1e-3, "min": 6e4,
		"msec": 1, "milliseconds": 1,
	}
	named = map[string]quantity{
		"ups":                         stepRate,
		"wps":                         items,
		"tps":                         items,
		"tgs":                         items,
		"speed":                       items,
		"dt":                          someTime,
		"overall_throughput":          items,
		"throughput":                  items,
		"samples_per_second":          items,
		"interval_runtime":            someTime,
		"interval_samples_per_second": items,
		"global_step/sec":             stepRate,
		"iters_per_sec":               stepRate,
		"it/s":                        stepRate,
		"steps_per_second":            stepRate,
		"update":                      nothing,
		"updates":                     step,
		"num_updates":                 step,
		"global_step":                 step,
	}
	stepWords = map[string]bool{
		"step":              true,
		"iter":              true,
		"iteration":         true,
		"iterations":        true,
		"global step":       true,
		"global_step":       true,
		"batch":             true,
		"it":                true,
		"train step":        true,
		"current iteration": true,
	}
)

func understood(name, unit string) meaning {
	low := strings.ToLower(name)
	last := low[strings.LastIndexByte(low, ' ')+1:]
	ofUnit := strings.ToLower(unit)
	switch {
	case perStep[ofUnit] > 0:
		return meaning{
			what: stepTime,
			toMs: perStep[ofUnit],
			name: "the rate of the bar",
		}
	case rates[ofUnit]:
		return meaning{
			what: stepRate,
			toMs: 1e3,
			name: "the rate of the bar",
		}
	case itemRates[ofUnit]:
		return meaning{what: items, name: unit}
	case stepWords[low] || stepWords[last] && !strings.Contains(low, "time"):
		return meaning{what: step, name: name, plain: stepWords[low]}
	}
	if what, ok := named[last]; ok {
		return meaning{what: what, name: name, toMs: durations[ofUnit]}
	}
	if ofUnit == "/s" || ofUnit == "/sec" {
		return meaning{what: items, name: "the rate per second"}
	}
	m := column.Read(strings.Replace(name, "(t)", "time", 1)) // OpenCLIP
	toMs := durations[ofUnit]
	if toMs == 0 {
		toMs = durations[string(m.Unit)]
	}
	switch m.Role {
	case column.IterTime:
		return meaning{what: stepTime, toMs: toMs, name: name}
	case column.Time:
		return meaning{what: someTime, toMs: toMs, name: name}
	case column.Mean:
		return meaning{what: meanTime, toMs: toMs, name: name}
	case column.Rate:
		return meaning{what: stepRate, name: name}
	case column.Items:
		if isMean(low) {
			return meaning{what: meanItems, name: name}
		}
		return meaning{what: items, name: name}
	case column.Part:
		return meaning{what: partTime, toMs: toMs, name: name}
	case column.Known:
		if strings.Contains(low, "throughput") {
			return meaning{what: partRate, name: name}
		}
	case column.Elapsed:
		return meaning{what: elapsed, toMs: toMs, name: name}
	case column.Step:
		return meaning{what: step, name: name}
	}
	return meaning{}
}

func isMean(low string) bool {
	return strings.Contains(low, "avg") ||
		strings.Contains(low, "average") ||
		strings.Contains(low, "running")
}
