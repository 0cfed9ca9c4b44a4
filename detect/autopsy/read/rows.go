package read

import (
	"regexp"
	"slices"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// rows reads tables of members inside a text: a head that begins with "rank", "node" or the like and one line
// for each member, aligned by blanks or by bars, and lists such as "node04: 190.5 GB/s".
type rows struct {
	m     *members
	names []string // of the table that follows, nil = none
	key   int
	by    string
	kept  int // rows of it
	table int64

	stem string // of the list that is read: the name without its digits, and its unit
	list []item
}

// item is one line of a list.
type item struct {
	key, value, unit string
	at               autopsy.Source
}

const (
	namesMost = 32 // columns of a table in a text
	itemsMost = 1 << 14
	itemBytes = 120 // of a list's line
)

// take reports whether the line is of a table or a list.
func (r *rows) take(l *line) bool {
	if r.listed(l) {
		return true
	}
	cells := cellsOf(l.body)
	if len(cells) < 2 || len(cells) > namesMost {
		if len(cells) > 0 {
			r.names = nil
		}
		return false
	}
	if r.names != nil && r.row(l, cells) {
		return true
	}
	return r.head(cells)
}

// cellsOf splits a row at bars or blanks; rulers have none.
func cellsOf(s string) []string {
	if strings.Trim(s, "|+-=: ") == "" {
		return nil
	}
	if !strings.Contains(s, "|") {
		return strings.Fields(s)
	}
	var out []string
	for c := range strings.SplitSeq(strings.Trim(strings.TrimSpace(s), "|"), "|") {
		out = append(out, strings.TrimSpace(c))
	}
	return out
}

// head takes the names of columns where one of the first two names a member.
func (r *rows) head(cells []string) bool {
	at, by := -1, ""
	for i, c := range cells[:2] {
		for _, k := range keys {
			if strings.ToLower(c) == k.column && at < 0 {
				at = i
				by = k.by
			}
		}
	}
	if at < 0 ||
		slices.ContainsFunc(cells, func(c string) bool {
			return c == "" || isDigit(c[0]) || strings.HasSuffix(c, ":")
		}) {
		return false
	}
	if !slices.ContainsFunc(cells, func(c string) bool {
		return isMetric(strings.ToLower(c))
	}) {
		return false
	}
	r.names = slices.Clone(cells)
	r.key = at
	r.by = by
	r.kept = 0
	r.table++
	return true
}

// row takes one member's values; what does not fit the head ends the table.
func (r *rows) row(l *line, cells []string) bool {
	if len(cells) != len(r.names) || cells[r.key] == "" {
		r.names = nil
		return false
	}
	key := clipped(cells[r.key])
	if r.by == "rank" {
		key = strings.TrimPrefix(key, "r")
	}
	who := memberOf(r.by, key)
	if r.by == "rank" && who.Rank < 0 {
		r.names = nil
		return false
	}
	for i, name := range r.names {
		if i == r.key || !isMetric(strings.ToLower(name)) {
			continue
		}
		value, unit := numberAndUnit(cells[i])
		r.m.add(
			l,
			name,
			directionOf(name+" "+unit),
			r.by,
			cells[r.key],
			who,
			r.table,
			value,
		)
	}
	r.kept++
	return true
}

// numberAndUnit splits "381.06s" and "1.10x".
func numberAndUnit(s string) (value, unit string) {
	end := 0
	for end < len(s) && (isDigit(s[end]) || s[end] == '.') {
		end++
	}
	return s[:end], strings.TrimSpace(s[end:])
}

var listItem = regexp.MustCompile(
	`^((?i:gpu|rank|node|device|worker|host) \d+|[A-Za-z][\w.-]*?\d[\w.-]*)(?: ?[:=] ?| +)([\d.]+) ?([A-Za-z]\w*(?:/\w+)?)$`,
)

// listed reads one line of a list: at least three members of one stem with one unit.
func (r *rows) listed(l *line) bool {
	body := strings.TrimSpace(l.body)
	var x []string
	if len(body) > 0 &&
		len(body) <= itemBytes &&
		isWord(body[0]) &&
		isWord(body[len(body)-1]) {
		x = listItem.FindStringSubmatch(body)
	}
	if x == nil {
		r.finish()
		return false
	}
	stem := strings.TrimRight(strings.Map(letters, x[1]), "-._") + " " + x[3]
	if stem != r.stem {
		r.finish()
	}
	if r.stem = stem; len(r.list) < itemsMost {
		r.list = append(r.list, item{clipped(x[1]), x[2], x[3], l.source(r.m.file)})
	}
	return true
}

// letters drops digits from a name.
func letters(c rune) rune {
	if c >= '0' && c <= '9' {
		return -1
	}
	return c
}

// listUnits are the units of lists that say how fast something is.
var listUnits = []string{
	"gb/s", "gbps", "gb/sec", "gib/s", "mb/s", "tflops", "tflop/s", "gflops", "ms", "s", "us",
	"sec", "seconds", "it/s", "samples/s", "tokens/s",
}

// finish keeps the list that ended.
func (r *rows) finish() {
	list := r.list
	r.list, r.stem = nil, ""
	if len(list) < membersLeast || !slices.Contains(listUnits, strings.ToLower(list[0].unit)) {
		return
	}
	r.table++
	for _, x := range list {
		who := autopsy.Who{Rank: -1, Host: x.key}
		by := "host"
		word, n, ok := strings.Cut(x.key, " ")
		if ok && (strings.EqualFold(word, "gpu") || strings.EqualFold(word, "device")) {
			who = autopsy.Who{Rank: -1, Device: n}
			by = "device"
		} else if n, ok := strings.CutPrefix(strings.ToLower(x.key), "rank"); ok {
			who = autopsy.Who{Rank: int(whole(strings.Trim(n, " _-"), -1))}
			by = "rank"
		} else if strings.HasPrefix(strings.ToLower(x.key), "gpu") ||
			strings.HasPrefix(x.key, "mlx5") ||
			strings.HasPrefix(x.key, "cuda") {
			who = autopsy.Who{Rank: -1, Device: x.key}
			by = "device"
		}
		l := line{number: x.at.Line, text: x.at.Text}
		r.m.add(
			&l,
			"the value in "+x.unit,
			directionOf(x.unit),
			by,
			x.key,
			who,
			r.table,
			x.value,
		)
	}
}

const membersLeast = 3 // of a list, that it is one
