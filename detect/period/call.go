package period

import "math/bits"

// Call is one communication call of one rank, in the order of the calls.
type Call struct {
	Op      uint32 // kind of the call; falcon.Op on live sequences
	Comm    uint64 // communicator, any number that distinguishes them
	Bytes   int64  // payload; 0 when unknown
	TimeNs  int64  // when the call was entered, any origin
	Ordinal uint64 // number of the call on its communicator, from 0
}

// Class is what makes two calls the same for the period: sizes count by
// powers of two, because they vary a little in jobs with embeddings.
type Class struct {
	Op   uint32
	Comm uint64
	Size uint8 // bits.Len of the payload
}

func (c Call) classOf() Class {
	return Class{
		Op:   c.Op,
		Comm: c.Comm,
		Size: uint8(bits.Len64(uint64(max(c.Bytes, 0)))),
	}
}

// isTiny reports whether calls of the class carry no more than a loss, a norm or a vote.
func (c Class) isTiny() bool {
	return c.Size > 0 && c.Size <= tinySizes
}

// Anchor is the call that iterations are counted on: the rarest periodic one.
type Anchor struct {
	Class Class
	// PerPeriod is the class's calls an iteration; the anchor is each PerPeriod-th.
	PerPeriod int
	// OrdinalStep is the growth of the ordinal on its communicator an iteration.
	OrdinalStep uint64
}

// Iteration is one iteration between two occurrences of the anchor.
type Iteration struct {
	Number  int64 // from the anchor's ordinal where that is steady, then counted
	StartNs int64 // the anchor's enter time
	EndNs   int64 // the next anchor's enter time
	Calls   int   // calls from one anchor to the next
	Ordinal uint64
	// Fresh marks the first iteration after the period was learned or
	// learned again: numbers may jump here, and only here, backwards.
	Fresh bool
}

// Ms is the iteration's time in milliseconds.
func (i Iteration) Ms() float64 {
	return float64(i.EndNs-i.StartNs) / 1e6
}
