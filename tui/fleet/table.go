package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon/tui/key"
)

// Order is how rows follow each other.
type Order int

// The orders.
const (
	ByWorst Order = iota // class, then who needs a person, then what goes an hour
	ByName
	BySize
	ByLost
	ByNews // oldest news first
	orders
)

var orderWords = [orders]string{"worst first", "by name", "by size", "by GPU-hours lost", "oldest news first"}

// String is the order in words.
func (o Order) String() string {
	return orderWords[max(0, min(o, orders-1))]
}

// Table owns what the operator has chosen of the list: order, filter, and the job under the
// cursor, which stays under it wherever it moves to.
type Table struct {
	Order  Order
	Filter Filter
	chosen string // "" = the first row
	first  int    // row on top
}

// Rows are the rows that the filter leaves, in their order.
func (t *Table) Rows(jobs []*Job, now time.Time) []Row {
	rows := make([]Row, len(jobs))
	for i, j := range jobs {
		rows[i] = RowOf(j, now)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(byWorst(&a, &b), cmp.Compare(a.Name, b.Name))
	})
	return t.Choice(rows)
}

// Choice is what the filter leaves of rows that come worst first, in the table's order.
func (t *Table) Choice(worst []Row) []Row {
	rows := make([]Row, 0, len(worst))
	for i := range worst {
		if t.Filter.Match(&worst[i]) {
			rows = append(rows, worst[i])
		}
	}
	if t.Order != ByWorst {
		compare := comparisons[max(0, min(t.Order, orders-1))]
		slices.SortStableFunc(rows, func(a, b Row) int {
			return compare(&a, &b)
		})
	}
	return rows
}

var comparisons = [orders]func(a, b *Row) int{
	ByWorst: byWorst,
	ByName:  func(a, b *Row) int { return cmp.Compare(a.Name, b.Name) },
	BySize:  func(a, b *Row) int { return b.World() - a.World() },
	ByLost:  func(a, b *Row) int { return cmp.Compare(b.Lost, a.Lost) },
	ByNews: func(a, b *Row) int {
		return cmp.Compare(seconds(b.News), seconds(a.News))
	},
}

func byWorst(a, b *Row) int {
	return cmp.Or(
		cmp.Compare(a.Class, b.Class),
		truth(b.NeedsPerson())-truth(a.NeedsPerson()),
		// of those away: as they were
		cmp.Compare(classOfSaid(a.State.Snap, a.said), classOfSaid(b.State.Snap, b.said)),
		cmp.Compare(magnitude(b.PerHour), magnitude(a.PerHour)),
	)
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// magnitude lets rows change places only when one loses clearly more than the other.
func magnitude(x float64) float64 {
	return math.Round(2 * math.Log2(1+x))
}

// seconds is an age without what differs from picture to picture.
func seconds(d time.Duration) int64 {
	if d < 0 {
		return math.MaxInt64
	}
	return int64(d / (10 * time.Second))
}

// Cursor is the row of the job under the cursor; 0 where it is not there.
func (t *Table) Cursor(rows []Row) int {
	return max(0, slices.IndexFunc(rows, func(r Row) bool {
		return r.Name == t.chosen
	}))
}

// Chosen is the row under the cursor, nil where there is none.
func (t *Table) Chosen(rows []Row) *Row {
	if len(rows) == 0 {
		return nil
	}
	return &rows[t.Cursor(rows)]
}

// Choose puts the cursor on a job.
func (t *Table) Choose(name string) {
	t.chosen = name
}

// Act moves the cursor, of which h rows are on screen, and reports whether the action does.
func (t *Table) Act(a key.Action, rows []Row, h int) bool {
	at := t.Cursor(rows)
	page := max(1, h/2)
	switch a {
	case key.Up:
		at--
	case key.Down:
		at++
	case key.PageUp:
		at -= page
	case key.PageDown:
		at += page
	case key.First:
		at = 0
	case key.Last:
		at = len(rows) - 1
	case key.Next, key.Prev:
		return t.nextWaiting(a, rows)
	case key.Order:
		t.Order = (t.Order + 1) % orders
		return true
	default:
		return false
	}
	if len(rows) > 0 {
		t.chosen = rows[max(0, min(at, len(rows)-1))].Name
	}
	return true
}

// nextWaiting goes to the next or previous job in which something waits for a person, and
// reports whether there is one.
func (t *Table) nextWaiting(a key.Action, rows []Row) bool {
	step := 1
	at := t.Cursor(rows)
	if a == key.Prev {
		step = len(rows) - 1
	}
	for n := range len(rows) {
		i := (at + (n+1)*step) % len(rows)
		if rows[i].NeedsPerson() {
			t.chosen = rows[i].Name
			return true
		}
	}
	return false
}

// window is the rows that fit in h, with the cursor among them.
func (t *Table) window(rows []Row, h int) (first int) {
	at := t.Cursor(rows)
	t.first = max(0, min(t.first, len(rows)-h))
	t.first = max(at-h+1, min(t.first, at))
	return max(0, t.first)
}
