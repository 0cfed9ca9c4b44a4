package ring

import (
	"fmt"

	falcon "github.com/failslow/falcon"
)

// orderCodes are the kinds of orders as the hook knows them.
var orderCodes = map[falcon.OrderKind]uint32{
	falcon.OrderMicroBatches: orderMicroBatches,
	falcon.OrderPlacement:    orderPlacement,
	falcon.OrderCheckpoint:   orderCheckpoint,
	falcon.OrderStop:         orderStop,
}

// checkOrder makes the mailbox's code and values of an order, or returns what does
// not fit. A field of another kind is refused: an order that means two things would
// be carried out as one of them, and not always the one that was meant.
func (p *Process) checkOrder(o falcon.Order) (code uint32, values []int32, err error) {
	bad := func(format string, args ...any) (uint32, []int32, error) {
		return 0, nil, fmt.Errorf("%w: "+format, append([]any{ErrOrder}, args...)...)
	}
	code, known := orderCodes[o.Kind]
	switch newest := p.NewestOrder(); {
	case p.err != nil:
		return 0, nil, p.err
	case !known:
		return bad("kind %q is not known to the hook", o.Kind)
	case o.Kind != falcon.OrderMicroBatches && len(o.MicroBatches) > 0,
		o.Kind != falcon.OrderPlacement && len(o.Blocks) > 0,
		o.Kind != falcon.OrderCheckpoint && o.Leave:
		return bad("one of kind %s carries the values of another kind", o.Kind)
	case o.ID <= newest:
		return bad("id %d is not above %d, the newest in the mailbox", o.ID, newest)
	}
	if err := p.checkBlocks(o); err != nil {
		return 0, nil, err
	}
	values = orderValuesOf(o)
	if len(values) > orderValues {
		return bad("%d values do not fit, at most %d do", len(values), orderValues)
	}
	return code, values, nil
}

func orderValuesOf(o falcon.Order) []int32 {
	switch o.Kind {
	case falcon.OrderMicroBatches:
		return o.MicroBatches
	case falcon.OrderPlacement:
		return o.Blocks
	case falcon.OrderCheckpoint:
		if o.Leave {
			return []int32{1}
		}
		return []int32{0}
	}
	return nil
}

// checkBlocks wants a placement's blocks to be a permutation that parts the
// ranks evenly: two processes with one rank, or a rank without a process, would
// hang the job.
func (p *Process) checkBlocks(o falcon.Order) error {
	if o.Kind != falcon.OrderPlacement {
		return nil
	}
	n := len(o.Blocks)
	if w := p.header.World; n == 0 || n > orderValues || (w > 0 && w%n != 0) {
		return fmt.Errorf("%w: %d ranks do not fall into %d equal blocks", ErrOrder, w, n)
	}
	taken := make([]bool, n)
	for _, b := range o.Blocks {
		if b < 0 || int(b) >= n || taken[b] {
			return fmt.Errorf("%w: blocks %v take one place twice, or one that there is not",
				ErrOrder, o.Blocks)
		}
		taken[b] = true
	}
	return nil
}
