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
	replica      int // in dp
	sharded      bool
	weight, grad device.Floats
	params       int // of weight; the rest is padding
	moments      [2]device.Floats
}

func newOptimizer(st *stage, dp *device.Comm, replica int, adam model.Adam, sharded bool) *optimizer {
	o := &optimizer{
		q: st.q, adam: adam, dp: dp, replica: replica, sharded: sharded && dp != nil,
		weight: st.weight, grad: st.grad, params: st.shard.Params(),
	}
	n := o.own(st.weight).Len()
	o.moments = [2]device.Floats{st.q.AllocFloats(n), st.q.AllocFloats(n)}
	return o
}

// own is this replica's part of a buffer of the stage.
func (o *optimizer) own(f device.Floats) device.Floats {
	if !o.sharded {
		return f
	}
	n := f.Len() / o.dp.Size
	return f.At(o.replica*n, n)
}

// state is what the rank's next step depends on: the weights and the two
// moments, without the padding of what is not sharded.
func (o *optimizer) state() []device.Floats {
	n := o.params
	if o.sharded {
		n = o.moments[0].Len()
	}
	return []device.Floats{o.weight.At(0, o.params), o.moments[0].At(0, n), o.moments[1].At(0, n)}
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
