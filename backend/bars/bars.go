package bars

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Bounds of what is kept.
const (
	Most        = 256                 // bars at a time
	ReasonMost  = 512                 // bytes
	NameMost    = 256                 // bytes
	LongestMost = 30 * 24 * time.Hour // a bar is looked at again
)

// ErrInvalid is wrapped by a refusal of what lacks something; ErrStale by one of what does not
// fit the bars there are.
var (
	ErrInvalid = errors.New("bars: invalid")
	ErrStale   = errors.New("bars: not as it was seen")
)

// Entry is what one person said, as the journal has it.
type Entry struct {
	Name    string `json:"name"` // a node or a device
	Lift    bool   `json:"lift,omitempty"`
	UntilNs int64  `json:"until_unix_ns,omitempty"`
	Reason  string `json:"reason"`
	By      string `json:"by"`
	AtNs    int64  `json:"at_unix_ns"`
}

// Bar is one that was put up. It is in force until its end.
type Bar struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	By      string `json:"by"`
	SinceNs int64  `json:"since_unix_ns"`
	UntilNs int64  `json:"until_unix_ns"`
}

// InForce reports whether the bar holds now.
func (b Bar) InForce(now time.Time) bool {
	return now.UnixNano() < b.UntilNs
}

// Book holds the bars by name.
type Book map[string]Bar

// Check says in one sentence why an entry can't be taken.
func (b Book) Check(now time.Time, e Entry) error {
	old, known := b[e.Name]
	span := time.Duration(e.UntilNs - now.UnixNano())
	switch {
	case e.Name == "" || len(e.Name) > NameMost:
		return fmt.Errorf("%w: name a node or a device, such as n3 or n3.g0", ErrInvalid)
	case e.Reason == "":
		return fmt.Errorf("%w: say why: it is kept with the bar", ErrInvalid)
	case len(e.Reason) > ReasonMost:
		return fmt.Errorf("%w: the reason has %d bytes, at most %d are kept",
			ErrInvalid, len(e.Reason), ReasonMost)
	case e.Lift && (!known || !old.InForce(now)):
		return fmt.Errorf("%w: %s is not barred", ErrStale, e.Name)
	case e.Lift:
		return nil
	case span <= 0 || span > LongestMost:
		return fmt.Errorf("%w: a bar is for a time up to %d days, not for %s",
			ErrInvalid, int(LongestMost.Hours()/24), span)
	case !known && len(b.At(now)) >= Most:
		return fmt.Errorf("%w: %d bars are in force, lift one first", ErrStale, Most)
	}
	return nil
}

// Apply takes an entry that Check let pass, or one of the journal. Bars that had ended by then
// are forgotten.
func (b Book) Apply(e Entry) {
	maps.DeleteFunc(b, func(_ string, v Bar) bool {
		return v.UntilNs <= e.AtNs
	})
	if e.Lift {
		delete(b, e.Name)
		return
	}
	b[e.Name] = Bar{
		Name:    e.Name,
		Reason:  e.Reason,
		By:      e.By,
		SinceNs: e.AtNs,
		UntilNs: e.UntilNs,
	}
}

// At are the bars in force, by name.
func (b Book) At(now time.Time) []Bar {
	var out []Bar
	for _, v := range b {
		if v.InForce(now) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(x, y Bar) int {
		return cmp.Compare(x.Name, y.Name)
	})
	return out
}

// Node is the bar that keeps a node from being used: its own, else the first of its devices', as
// a spare takes the ranks of a whole node.
func (b Book) Node(now time.Time, n falcon.Node) (Bar, bool) {
	if v, ok := b[string(n)]; ok && v.InForce(now) {
		return v, true
	}
	list := b.At(now)
	i := slices.IndexFunc(list, func(v Bar) bool {
		return falcon.Device(v.Name).Node() == n
	})
	if i < 0 {
		return Bar{}, false
	}
	return list[i], true
}
