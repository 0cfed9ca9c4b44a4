package train

import (
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// optimizer is Adam over the data-parallel group: plain, where every replica
// sums all gradients and updates all weights, or sharded (ZeRO stage 1,
// Rajbhandari et al. 2020, §5.1), where each keeps the moments of one slice,
// updates it, and gathers the others'. weight and grad are the stage's whole
// buffers, a multiple of the group's size.
type optimizer struct {
	q            *device.Queue
	adam         model.Adam
	dp           *device.Comm
	sharded      bool
	weight, grad device.Floats
	own          func(device.Floats) device.Floats
	moments      [2]device.Floats
}

func newOptimizer(st *stage, dp *device.Comm, replica int, adam model.Adam, sharded bool) *optimizer {
	o := &optimizer{
		q: st.q, adam: adam, dp: dp, sharded: sharded && dp != nil, weight: st.weight, grad: st.grad,
		own: func(f device.Floats) device.Floats { return f },
	}
	if o.sharded {
		o.own = func(f device.Floats) device.Floats {
			n := f.Len() / dp.Size
			return f.At(replica*n, n)
		}
	}
	n := o.own(st.weight).Len()
	o.moments = [2]device.Floats{st.q.AllocFloats(n), st.q.AllocFloats(n)}
	return o
}

// reduce enqueues the sum of the gradients over the replicas.
func (o *optimizer) reduce() {
	if o.sharded {
		o.q.ReduceScatterFloats(o.dp, o.own(o.grad), o.grad)
		return
	}
	o.q.SumFloats(o.dp, o.grad)
}

// update enqueues step number step (from 1) on this replica's part of the
// weights, with the summed gradients scaled to a mean.
func (o *optimizer) update(step int64, scale float64) {
	o.q.Adam(o.adam, step, scale, o.own(o.weight), o.moments[0], o.moments[1], o.own(o.grad))
}

// gather enqueues the return of the other replicas' parts.
func (o *optimizer) gather() {
	if o.sharded {
		o.q.GatherFloats(o.dp, o.weight, o.own(o.weight))
	}
}
