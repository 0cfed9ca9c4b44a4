package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/failslow/falcon/detect/autopsy"
)

// Bounds of a report in JSON.
const (
	reportBytes = 64 << 20
	reportDepth = 16
	reportLeast = 3 // members that make an object one of members
)

// memberKey is a member as a key of an object: "3", "rank_3", "node17".
var memberKey = regexp.MustCompile(`^(?:(rank)[_ -]?)?(\d{1,7})$|^((?:node|host|worker|gpu)[\w.-]*\d)$`)

var jsonBegin = regexp.MustCompile(`^(?:\[\s*)*\{\s*(?:"|\}|$)`)

// looksLikeReport reports whether a file is one JSON document over several lines, or one that
// its beginning has whole.
func looksLikeReport(head []byte) bool {
	text := bytes.TrimLeft(head, " \t\r\n\xef\xbb\xbf")
	if !jsonBegin.Match(text) {
		return false
	}
	first, _, _ := bytes.Cut(text, []byte{'\n'})
	return !json.Valid(bytes.TrimSpace(first)) || json.Valid(text)
}

// addReport reads a JSON document in which an object has a value for each member, or a list
// has an object for each.
func (s *Set) addReport(input *autopsy.Input, in io.Reader) error {
	var doc any
	if err := json.NewDecoder(io.LimitReader(in, reportBytes)).Decode(&doc); err != nil {
		return fmt.Errorf("it is no JSON document: %w", err)
	}
	m := &members{file: input.Path, step: -1}
	r := report{m: m, line: &line{who: autopsy.Nobody}}
	r.walk("", doc, 0)
	if len(m.samples) == 0 {
		return errors.New("no object of it has a value for each rank, node or GPU")
	}
	s.takeMembers(input, m)
	return nil
}

// report walks through a document.
type report struct {
	m     *members
	line  *line
	table int64
}

func (r *report) walk(name string, doc any, depth int) {
	if depth > reportDepth {
		return
	}
	switch doc := doc.(type) {
	case map[string]any:
		if r.object(name, doc) {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(doc)) {
			r.walk(key, doc[key], depth+1)
		}
	case []any:
		r.list(doc)
		for _, x := range doc {
			r.walk(name, x, depth+1)
		}
	}
}

// object takes an object whose keys are members and whose values are numbers, or objects of numbers.
func (r *report) object(name string, doc map[string]any) bool {
	if len(doc) < reportLeast {
		return false
	}
	for key := range doc {
		if !memberKey.MatchString(key) {
			return false
		}
	}
	r.table++
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		x := memberKey.FindStringSubmatch(key)
		who := autopsy.Who{Rank: int(whole(x[2], -1)), Host: clipped(x[3])}
		by := "rank"
		if x[3] != "" {
			by = "host"
		}
		switch v := doc[key].(type) {
		case float64:
			r.value(name, by, key, who, v)
		case map[string]any:
			for _, metric := range slices.Sorted(maps.Keys(v)) {
				if n, ok := v[metric].(float64); ok {
					r.value(metric, by, key, who, n)
				}
			}
		}
	}
	return true
}

// list takes a list of objects that each name a member.
func (r *report) list(doc []any) {
	r.table++
	for _, x := range doc {
		row, ok := x.(map[string]any)
		if !ok {
			return
		}
		for _, k := range keys {
			key, ok := row[k.column]
			if !ok {
				continue
			}
			text := clipped(fmt.Sprint(key))
			who := memberOf(k.by, text)
			for _, metric := range slices.Sorted(maps.Keys(row)) {
				if v, ok := row[metric].(float64); ok && metric != k.column {
					r.value(metric, k.by, text, who, v)
				}
			}
			break
		}
	}
}

func (r *report) value(metric, by, key string, who autopsy.Who, v float64) {
	if !isMetric(metric) {
		return
	}
	metric = clipped(metric)
	r.line.text = fmt.Sprintf("%s of %s: %g", metric, clipped(key), v)
	r.m.put(r.line, metric, directionOf(metric), by, key, who, r.table, v)
}
