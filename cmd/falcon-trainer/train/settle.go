package train

import (
	"errors"
	"sync/atomic"

	"github.com/failslow/falcon"
)

// Words of the decision on a placement at the rendezvous.
const (
	decisionCommitted = "committed"
	decisionUndone    = "undone"
)

// openSwap is a placement whose end this rank does not know yet.
type openSwap struct {
	swap *swap // the order, its name and the ranks may be read by all
	step atomic.Int32
}

// settleSwap decides on a placement, for all ranks: the first decision holds. A vote
// alone would not do: a rank that dies in it may leave some who know its
// result and some who never will. So a rank that knows publishes committed before it
// changes anything, and one that ends without knowing publishes undone, and each
// follows the decision that was first.
func (c Config) settleSwap(s *swap, committed bool) (bool, error) {
	word := decisionUndone
	if committed {
		word = decisionCommitted
	}
	stands, err := c.Rendezvous.Decide(s.name, word)
	return stands == decisionCommitted, err
}

// endLine is the last line of a placement that ended in step k.
func (s *swap) endLine(k int, committed bool) swapOverLine {
	rank := s.was
	if committed {
		rank = s.rank
	}
	return swapOverLine{
		Swap:      s.order,
		Rank:      int(s.was),
		Step:      falcon.SwapSteps[k],
		State:     "over",
		Committed: committed,
		NewRank:   int(rank),
		From:      s.from,
	}
}

// lastWords ends the log: with what became of a placement that was under way,
// and with why the run ended.
func (w *worker) lastWords(err error) error {
	var failed error
	if open := w.swapping.Load(); open != nil && err != nil {
		committed, settleErr := w.cfg.settleSwap(open.swap, false)
		line := open.swap.endLine(int(open.step.Load()), committed)
		line.Reason = err.Error()
		if settleErr != nil {
			failed = settleErr
		} else {
			failed = w.cfg.Log.writeLine(line)
		}
	}
	last := endLine{
		End:  EndError,
		Rank: int(w.cfg.Rank),
		Next: w.reached.Load(),
	}
	switch {
	case err == nil:
		last.End = w.orders.end
	case errors.Is(err, ErrPeer):
		last.End = EndPeer
	}
	if err != nil {
		last.Why = err.Error()
	}
	return errors.Join(failed, w.cfg.Log.writeLine(last))
}
