package iterate

import "testing"

func TestCensusPredictsOtherMicroBatches(t *testing.T) {
	c := NewCensus()
	iteration := func(m int) int {
		n := 0
		add := func(k Kind) {
			c.Add(k)
			n++
		}
		for range m {
			for range 4 {
				add(Kind{Op: 1, Comm: 7, Bytes: 1 << 20}) // tensor parallel
			}
			add(Kind{Op: 9, Comm: 8, Bytes: 1 << 18})
			add(Kind{Op: 10, Comm: 8, Bytes: 1 << 18})
		}
		add(Kind{Op: 1, Comm: 9, Bytes: 1 << 30}) // gradients
		for range 3 {
			add(Kind{Op: 1, Comm: 10, Bytes: 8}) // votes
		}
		c.Close()
		return n
	}
	iteration(8)
	if got := c.Predict(8, 5); got != 0 {
		t.Fatalf("predicted %d from an iteration whose begin was not seen", got)
	}
	for _, step := range [][2]int{{8, 5}, {5, 9}, {9, 2}, {2, 12}} {
		iteration(step[0])
		got := c.Predict(step[0], step[1])
		if want := iteration(step[1]); got != want {
			t.Fatalf("%d to %d micro-batches: predicted %d calls, there were %d", step[0], step[1], got, want)
		}
	}
	if got := c.Predict(1, 4); got != 0 {
		t.Fatalf("with one micro-batch nothing tells what grows, predicted %d", got)
	}
}

func TestCensusIsBounded(t *testing.T) {
	c := NewCensus()
	c.Close()
	for i := range 3 * kindsMax {
		c.Add(Kind{Bytes: int64(i)})
	}
	c.Close()
	if len(c.last) != kindsMax || c.Predict(2, 3) != 0 {
		t.Fatalf("%d kinds, prediction %d", len(c.last), c.Predict(2, 3))
	}
}
