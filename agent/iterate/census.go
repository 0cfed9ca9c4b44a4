package iterate

// kindsMax bounds the kinds of calls that a Census counts; a job with more
// is not predicted.
const kindsMax = 1024

// Kind is what distinguishes calls of one iteration.
type Kind struct {
	Op    uint32
	Comm  uint64
	Bytes int64
}

// Census counts the calls of each kind in an iteration, to predict how many there will
// be when the micro-batches change. Adding a call of a known kind does not
// allocate.
type Census struct {
	now, last map[Kind]int
	whole     bool // now began with an iteration, and holds all its calls
	usable    bool // so did last
}

// NewCensus starts empty.
func NewCensus() *Census {
	return &Census{now: map[Kind]int{}, last: map[Kind]int{}}
}

// Add counts one call.
func (c *Census) Add(k Kind) {
	if n, known := c.now[k]; known || len(c.now) < kindsMax {
		c.now[k] = n + 1
		return
	}
	c.whole = false
}

// Close ends the running iteration.
func (c *Census) Close() {
	c.now, c.last = c.last, c.now
	c.whole, c.usable = true, c.whole
	clear(c.now)
}

// Predict is the number of calls in an iteration of to micro-batches, from the
// last one closed, which had from: the kinds whose number is a multiple of the
// micro-batches grow with them, the others stay. 0 where that can't be predicted.
func (c *Census) Predict(from, to int) int {
	if from < 2 || to < 1 || !c.usable {
		return 0
	}
	calls := 0
	for _, n := range c.last {
		if n%from == 0 {
			n = n / from * to
		}
		calls += n
	}
	return calls
}
