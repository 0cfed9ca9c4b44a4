package logs

import (
	"math"
	"strconv"
	"strings"
)

// metric is one line of Prometheus' text format.
type metric struct {
	name   string
	labels map[string]string
	value  float64
}

// readMetric reads a line such as name{label="value"} 12; ok is false for others.
func readMetric(text string) (m metric, ok bool) {
	open := strings.IndexByte(text, '{')
	if open <= 0 || strings.ContainsFunc(text[:open], notInName) {
		return m, false
	}
	m = metric{name: text[:open], labels: map[string]string{}}
	rest := text[open+1:]
	for {
		rest = strings.TrimLeft(rest, " ,")
		if strings.HasPrefix(rest, "}") {
			break
		}
		name, after, found := strings.Cut(rest, `="`)
		if !found || len(m.labels) >= MaxColumns {
			return m, false
		}
		value, left, found := cutQuoted(after)
		if !found {
			return m, false
		}
		m.labels[name] = value
		rest = left
	}
	fields := strings.Fields(rest[1:])
	if len(fields) == 0 {
		return m, false
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	m.value = v
	return m, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// cutQuoted returns the text up to the closing quote; backslashes escape quotes.
func cutQuoted(s string) (value, rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// notInName reports whether a character is not allowed in the name of a metric.
func notInName(r rune) bool {
	return r != '_' &&
		r != ':' &&
		(r < '0' || r > '9') &&
		(r < 'a' || r > 'z') &&
		(r < 'A' || r > 'Z')
}
