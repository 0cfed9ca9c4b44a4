package read

import (
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon/detect/autopsy"
)

// take reads a line's time and who wrote it from what stands before its text.
func (l *line) take(text string) {
	l.text = text
	l.who = autopsy.Nobody
	l.named = false
	l.body = l.launcher(strings.TrimLeft(text, " "))
	l.time = stampOf(l.body)
}

// launcher takes off what torchrun (--tee), srun (-l), mpirun (--tag-output) and PyTorch's logger put before
// each line.
func (l *line) launcher(s string) string {
	for range 3 {
		rest, ok := l.bracket(s)
		if !ok {
			rest, ok = l.task(s)
		}
		if !ok {
			rest, ok = l.actor(s)
		}
		if !ok {
			return s
		}
		s = strings.TrimLeft(rest, " ")
	}
	return s
}

// bracket takes "[rank3]:", "[1,3]<stderr>:" and "[default7]:"; the last is a number within a node, which is
// nobody's rank.
func (l *line) bracket(s string) (string, bool) {
	if len(s) < 4 || s[0] != '[' {
		return s, false
	}
	word, _, ok := strings.Cut(s[1:min(len(s), 40)], "]")
	if !ok {
		return s, false
	}
	rest := s[len(word)+2:]
	rest = strings.TrimPrefix(rest, ":")
	switch {
	case strings.HasPrefix(word, "rank"), strings.HasPrefix(word, "Rank"):
		n, err := strconv.Atoi(strings.TrimLeft(word[len("rank"):], " :="))
		if err != nil {
			return s, false
		}
		l.who.Rank, l.named = n, true
		return rest, true
	case strings.HasPrefix(rest, "<std"):
		_, task, ok := strings.Cut(word, ",")
		n, err := strconv.Atoi(task)
		_, text, after := strings.Cut(rest, ">:")
		if !ok || err != nil || !after {
			return s, false
		}
		l.who.Rank, l.named = n, true
		return text, true
	case strings.HasPrefix(word, "default"):
		_, err := strconv.Atoi(word[len("default"):])
		return rest, err == nil
	}
	return s, false
}

// actor takes "(Trainer pid=8464, ip=10.0.0.7) ", as Ray has it.
func (l *line) actor(s string) (string, bool) {
	if s == "" || s[0] != '(' {
		return s, false
	}
	end := strings.Index(s[:min(len(s), actorBytes)], ") ")
	if end < 0 || !strings.Contains(s[:end], " pid=") {
		return s, false
	}
	if _, ip, ok := strings.Cut(s[:end], ", ip="); ok {
		l.who.Host = clipped(ip)
	}
	return s[end+2:], true
}

const actorBytes = 120 // of such a prefix

// task takes "12: ", as srun -l has it.
func (l *line) task(s string) (string, bool) {
	i := 0
	for i < len(s) && i < 6 && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 || i+1 >= len(s) || s[i] != ':' || s[i+1] != ' ' {
		return s, false
	}
	n, err := strconv.Atoi(s[:i])
	if err != nil {
		return s, false
	}
	l.who.Rank = n
	return s[i+2:], true
}

const stampWithin = 48 // bytes from the beginning of a line

// stampOf is the time at the beginning of a line; zero where there is none.
func stampOf(s string) time.Time {
	head := s[:min(len(s), stampWithin)]
	for i := 0; i+8 <= len(head); i++ {
		if head[i] < '0' || head[i] > '9' {
			continue
		}
		if t, ok := parseDate(s[i:]); ok {
			return t
		}
		for i+1 < len(head) && head[i+1] >= '0' && head[i+1] <= '9' {
			i++
		}
	}
	return weekday(head)
}

// parseDate reads "2024-10-23 01:00:10,123", with "/" or "T" as well, "06/12 03:00:01" and "0718
// 05:04:19.774". A year that is not given is 2000.
func parseDate(s string) (time.Time, bool) {
	if y, ok := digits(s, 4); ok && len(s) > 10 && (s[4] == '-' || s[4] == '/') {
		mo, ok1 := digits(s[5:], 2)
		d, ok2 := digits(s[8:], 2)
		if ok1 &&
			ok2 &&
			s[7] == s[4] &&
			(s[10] == ' ' || s[10] == 'T' || s[10] == ',' || s[10] == '_') {
			return clockOf(s[11:], y, mo, d)
		}
		return time.Time{}, false
	}
	if mo, ok := digits(s, 2); ok && len(s) > 6 && s[2] == '/' {
		if d, ok := digits(s[3:], 2); ok && s[5] == ' ' {
			return clockOf(s[6:], yearless, mo, d)
		}
	}
	if md, ok := digits(s, 4); ok && len(s) > 5 && s[4] == ' ' {
		return clockOf(s[5:], yearless, md/100, md%100)
	}
	return time.Time{}, false
}

const yearless = 2000

// clockOf reads "01:00:10" with a fraction after "," or ".".
func clockOf(s string, y, mo, d int) (time.Time, bool) {
	s = strings.TrimLeft(s, " ")
	if len(s) < 8 ||
		s[2] != ':' ||
		s[5] != ':' ||
		mo < 1 ||
		mo > 12 ||
		d < 1 ||
		d > 31 {
		return time.Time{}, false
	}
	h, ok1 := digits(s, 2)
	m, ok2 := digits(s[3:], 2)
	sec, ok3 := digits(s[6:], 2)
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, false
	}
	ns := 0
	if len(s) > 9 && (s[8] == '.' || s[8] == ',') {
		scale := 100_000_000
		for i := 9; i < len(s) && i < 18 && s[i] >= '0' && s[i] <= '9'; i++ {
			ns += int(s[i]-'0') * scale
			scale /= 10
		}
	}
	return time.Date(y, time.Month(mo), d, h, m, sec, ns, time.UTC), true
}

func digits(s string, n int) (v int, ok bool) {
	if len(s) < n {
		return 0, false
	}
	for i := range n {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		v = 10*v + int(s[i]-'0')
	}
	return v, true
}

// weekday reads the kernel's "[Tue Feb 13 22:10:01 2026]".
func weekday(s string) time.Time {
	const form = "Mon Jan _2 15:04:05 2006"
	if len(s) < len(form)+2 || s[0] != '[' || s[4] != ' ' {
		return time.Time{}
	}
	t, err := time.Parse(form, s[1:1+len(form)])
	if err != nil {
		return time.Time{}
	}
	return t
}
