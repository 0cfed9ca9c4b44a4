// Package link names a place in the console in one line of text, so that one
// engineer can send another exactly what is on screen:
//
//	inc/INC-0001?view=ranks&z=2&sel=3,5-7&filter=stage%3A3&at=1840
//
// It guarantees that Parse(l.String()) is l for every link that Parse returns,
// and that String writes printable ASCII without blanks or quotes, fit for a
// shell argument in quotes, a chat message, or the command of an SSH session.
// It is pure: no I/O, no clocks, no knowledge of what exists.
package link

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/key"
)

// ErrLink is wrapped by every error of Parse; the text says what is understood.
var ErrLink = errors.New("link: not a link into the console")

// Bounds of a link. A longer one is refused, never cut.
const (
	MaxBytes  = 4096
	MaxSel    = 4096 // ranks selected
	MaxFilter = 256  // characters
	MaxJob    = 128  // characters
	maxRank   = 1 << 20
	maxZoom   = 9
)

// Kind is what a link points at.
type Kind string

// The kinds.
const (
	Page     Kind = "page" // a page alone
	Incident Kind = "inc"
	Recovery Kind = "rec"
	Rank     Kind = "rank"
	Link     Kind = "link" // a pair of nodes
)

// Other ways to write places: "history" is the page of incidents, "device/n1.g0" the same page
// with what is known of a device.
const (
	history = "history"
	device  = "device"
)

// Unset is the value of Zoom and At where the link says nothing of them.
const Unset = -1

// Target is a place in the console.
type Target struct {
	Kind Kind
	ID   string    // Incident, Recovery: "INC-0001"; Link: "n1-n3"
	Rank int32     // Rank: from 0
	View key.Scope // page to show; empty = the kind's own

	Zoom   int     // zoom level of the map, from 0; Unset = as it is
	Sel    []int32 // ranks selected, ascending
	Filter string  // filter of the page
	At     int64   // iteration under the hairline; Unset = the newest
	Job    string  // whose place it is; empty = of the job at hand
}

// ToPage is the link to a page alone.
func ToPage(p key.Scope) Target {
	return Target{
		Kind: Page,
		View: p,
		Zoom: Unset,
		At:   Unset,
	}
}

// Parse reads a link. Ids may be written in small letters and without their
// zeros; whatever was copied around the link (blanks, "falcon:") is dropped.
// Errors wrap ErrLink.
func Parse(s string) (Target, error) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "falcon:")
	if len(s) > MaxBytes {
		return Target{}, fmt.Errorf("%w: it is longer than %d bytes", ErrLink, MaxBytes)
	}
	path, query, _ := strings.Cut(s, "?")
	t, err := parsePlace(strings.Trim(path, "/"))
	if err != nil {
		return Target{}, err
	}
	return t, t.parseQuery(query)
}

// parsePlace reads what is before the question mark.
func parsePlace(path string) (Target, error) {
	t := Target{Zoom: Unset, At: Unset}
	kind, rest, deep := strings.Cut(path, "/")
	var err error
	switch k := Kind(strings.ToLower(kind)); {
	case !deep && strings.EqualFold(kind, history):
		t.Kind = Page
		t.View = key.Events
		t.Zoom = 1
	case strings.EqualFold(kind, device):
		t.Kind = Page
		t.View = key.Events
		t.Zoom = 1
		err = t.setField("filter", "device:"+rest)
	case !deep:
		t.Kind = Page
		t.View, err = pageNamed(kind)
	case k == Incident || k == Recovery:
		t.Kind = k
		t.ID, err = parseID(k, rest)
	case k == Rank:
		t.Kind = k
		t.Rank, err = parseRank(rest)
	case k == Link:
		t.Kind = k
		t.ID, err = parseNodePair(rest)
	default:
		err = fmt.Errorf("%w: %s; write a page's name, inc/INC-0001, rec/REC-0001, rank/12 or link/n1-n3",
			ErrLink, quoteShort(path))
	}
	return t, err
}

func pageNamed(name string) (key.Scope, error) {
	p := key.Scope(strings.ToLower(name))
	if !slices.Contains(key.Pages, p) {
		return "", fmt.Errorf("%w: there is no page %s; there are %s", ErrLink, quoteShort(name), pageNames())
	}
	return p, nil
}

func pageNames() string {
	names := make([]string, len(key.Pages))
	for i, p := range key.Pages {
		names[i] = string(p)
	}
	return strings.Join(names, ", ")
}

// parseID reads "INC-0142", "inc-142" or "142".
func parseID(k Kind, s string) (string, error) {
	prefix := strings.ToUpper(string(k)) + "-"
	digits := strings.TrimPrefix(strings.ToUpper(s), prefix)
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || digits[0] == '+' {
		return "", fmt.Errorf("%w: %s is no id; write %s/%s0001", ErrLink, quoteShort(s), k, prefix)
	}
	return fmt.Sprintf("%s%04d", prefix, n), nil
}

func parseRank(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n >= maxRank {
		return 0, fmt.Errorf("%w: %s is no rank; ranks are numbers from 0", ErrLink, quoteShort(s))
	}
	return int32(n), nil
}

func parseNodePair(s string) (string, error) {
	l, err := falcon.ParseLink(s)
	if err != nil || !isSafeName(s) || strings.ContainsAny(s, "?/") {
		return "", fmt.Errorf("%w: %s is no link; write two nodes, n1-n3", ErrLink, quoteShort(s))
	}
	return l.String(), nil
}

// isSafeName reports whether a name can be in a link as it is.
func isSafeName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII ||
			!unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._:", r)
	})
}

// parseQuery reads what is behind the question mark. A key it doesn't know is
// an error: half of what was meant to be shown is worse than none.
func (t *Target) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: what follows the question mark can't be read", ErrLink)
	}
	names := make([]string, 0, len(values))
	for k := range values {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if len(values[k]) != 1 {
			return fmt.Errorf("%w: %s is given twice", ErrLink, quoteShort(k))
		}
		if err := t.setField(k, values[k][0]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Target) setField(name, v string) (err error) {
	switch name {
	case "view":
		t.View, err = pageNamed(v)
	case "z":
		t.Zoom, err = wholeNumber[int](name, v, maxZoom)
	case "at":
		t.At, err = wholeNumber[int64](name, v, 1<<53)
	case "sel":
		t.Sel, err = parseRanks(v)
	case "filter":
		if !utf8.ValidString(v) ||
			utf8.RuneCountInString(v) > MaxFilter ||
			strings.ContainsFunc(v, unprintable) {
			return fmt.Errorf("%w: the filter is not a line of at most %d characters", ErrLink, MaxFilter)
		}
		t.Filter = v
	case "job":
		if !utf8.ValidString(v) ||
			utf8.RuneCountInString(v) > MaxJob ||
			strings.ContainsFunc(v, unprintable) {
			return fmt.Errorf("%w: the job is not a name of at most %d characters", ErrLink, MaxJob)
		}
		t.Job = v
	default:
		err = fmt.Errorf("%w: %s is unknown; there are view, z, sel, filter, at and job",
			ErrLink, quoteShort(name))
	}
	return err
}

func unprintable(r rune) bool {
	return r != ' ' && !unicode.IsPrint(r)
}

func wholeNumber[T int | int64](name, v string, most uint64) (T, error) {
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil || n > most {
		return Unset, fmt.Errorf("%w: %s takes a number from 0 to %d, not %s",
			ErrLink, name, most, quoteShort(v))
	}
	return T(n), nil
}

// parseRanks reads "3,5-7".
func parseRanks(v string) ([]int32, error) {
	var out []int32
	for _, part := range strings.Split(v, ",") {
		from, to, span := strings.Cut(part, "-")
		lo, err := parseRank(from)
		if err != nil {
			return nil, err
		}
		hi := lo
		if span {
			if hi, err = parseRank(to); err != nil {
				return nil, err
			}
		}
		if hi < lo || int(hi-lo)+len(out) >= MaxSel {
			return nil, fmt.Errorf("%w: sel takes at most %d ranks, written 3,5-7", ErrLink, MaxSel)
		}
		for r := lo; r <= hi; r++ {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// String writes the link; Parse reads it back.
func (t Target) String() string {
	var b strings.Builder
	switch t.Kind {
	case Page:
		b.WriteString(string(t.View))
	case Rank:
		fmt.Fprintf(&b, "%s/%d", t.Kind, t.Rank)
	case Incident, Recovery, Link:
		b.WriteString(string(t.Kind) + "/" + t.ID)
	}
	sign := byte('?')
	put := func(name, v string) {
		b.WriteByte(sign)
		b.WriteString(name + "=" + v)
		sign = '&'
	}
	if t.View != "" && t.Kind != Page {
		put("view", string(t.View))
	}
	if t.Zoom != Unset {
		put("z", strconv.Itoa(t.Zoom))
	}
	if len(t.Sel) > 0 {
		put("sel", Ranges(t.Sel))
	}
	if t.Filter != "" {
		put("filter", url.QueryEscape(t.Filter))
	}
	if t.At != Unset {
		put("at", strconv.FormatInt(t.At, 10))
	}
	if t.Job != "" {
		put("job", url.QueryEscape(t.Job))
	}
	return b.String()
}

// Ranges writes ascending ranks as "3,5-7".
func Ranges(sel []int32) string {
	var b strings.Builder
	for i := 0; i < len(sel); {
		j := i
		for j+1 < len(sel) && sel[j+1] == sel[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(sel[i])))
		if j > i {
			b.WriteString("-" + strconv.Itoa(int(sel[j])))
		}
		i = j + 1
	}
	return b.String()
}

// quoteShort shows a bit of bad input in an error, whatever is in it.
func quoteShort(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
