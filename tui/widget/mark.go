package widget

// TargetKind is what a place on a page stands for.
type TargetKind int

// The kinds of targets.
const (
	NoTarget        TargetKind = iota
	TargetRank                 // N is a rank
	TargetRow                  // N is a row of the page's list, counted from 0
	TargetIteration            // N is an iteration
)

// Target is what a place on a page stands for, so that one can point at it.
type Target struct {
	Kind TargetKind
	N    int64
}

// Targets are the places that were marked while a canvas was drawn, and where
// the focused element is. They outlive the canvas.
type Targets struct {
	hits    []hit
	x, y    int
	focused bool
}

type hit struct {
	r    Rect
	what func(x, y int) Target
}

// Hit marks r as standing for one target.
func (c *Canvas) Hit(r Rect, t Target) {
	c.targets.hits = append(c.targets.hits, hit{r, func(int, int) Target { return t }})
}

// HitEach marks r; what returns the target of a cell, from r's corner. It is
// called when the pointer is there, and not while drawing: a map of thousands
// of ranks costs one mark.
func (c *Canvas) HitEach(r Rect, what func(x, y int) Target) {
	c.targets.hits = append(c.targets.hits, hit{r, what})
}

// Focus sets where the focused element is: the terminal's own cursor goes
// there, which screen readers follow.
func (c *Canvas) Focus(x, y int) {
	if x >= 0 && y >= 0 && x < c.W && y < c.H {
		c.targets.x = x
		c.targets.y = y
		c.targets.focused = true
	}
}

// Targets are the places marked so far.
func (c *Canvas) Targets() Targets { return c.targets }

// At is what was marked last at x, y.
func (t Targets) At(x, y int) Target {
	for i := len(t.hits) - 1; i >= 0; i-- {
		if h := t.hits[i]; h.r.Holds(x, y) {
			return h.what(x-h.r.X, y-h.r.Y)
		}
	}
	return Target{}
}

// Focused is where the focused element is, if there is one.
func (t Targets) Focused() (x, y int, ok bool) {
	return t.x, t.y, t.focused
}

// Holds reports whether a cell is in r.
func (r Rect) Holds(x, y int) bool {
	return x >= r.X && y >= r.Y && x < r.X+r.W && y < r.Y+r.H
}
