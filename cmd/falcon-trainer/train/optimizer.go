package train

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// version is one step of what a rank trains.
type version struct {
	step    int64         // iteration that begins with it; falcon.NoIteration = it holds nothing
	weight  device.Floats // of the whole stage; of a sharded one only the own slice is sure
	moments [2]device.Floats
}

// optimizer is Adam over the data-parallel group: plain, where every replica
// sums all gradients and updates all weights, or sharded (ZeRO stage 1,
// Rajbhandari et al. 2020, §5.1), where each keeps the moments of one slice,
// updates it, and gathers the others' from its instance. Buffers of the stage
// are a multiple of the number of slices.
//
// An update turns one version into the other and leaves the first as it was,
// so that a rank holds two steps from the end of an update to the beginning of
// the next one; or both are one memory, where the older step is not needed.
type optimizer struct {
	q        *device.Queue
	adam     model.Adam
	dp       *device.Comm // of all replicas
	instance *device.Comm // of those that hold the whole between them
	slices   model.Slices
	slice    int // held
	grad     device.Floats
	params   int // of a version's weight; the rest is padding
	versions [2]*version
	live     int // the version that is trained
}

// newOptimizer takes over the stage's weights as the version that iteration 0
// begins with. keep reserves memory for two versions.
func newOptimizer(st *stage, slices model.Slices, dp int, adam model.Adam, keep bool) *optimizer {
	o := &optimizer{
		q:      st.q,
		adam:   adam,
		slices: slices,
		slice:  slices.Of(dp),
		grad:   st.grad,
		params: st.shard.Params(),
	}
	first := o.newVersion(st.weight)
	o.versions = [2]*version{first, first}
	if keep {
		o.versions[1] = o.newVersion(st.q.AllocFloats(st.weight.Len()))
		o.versions[1].step = falcon.NoIteration
	}
	return o
}

func (o *optimizer) newVersion(weight device.Floats) *version {
	n := weight.Len() / o.slices.Count()
	return &version{
		weight:  weight,
		moments: [2]device.Floats{o.q.AllocFloats(n), o.q.AllocFloats(n)},
	}
}

// isSharded reports whether this rank holds less than the whole.
func (o *optimizer) isSharded() bool { return o.slices.Sharded() }

func (o *optimizer) currentVersion() *version { return o.versions[o.live] }
func (o *optimizer) otherVersion() *version {
	return o.versions[1-o.live]
}

// ownPart is this rank's part of a buffer of the stage.
func (o *optimizer) ownPart(f device.Floats) device.Floats {
	n := f.Len() / o.slices.Count()
	return f.At(o.slice*n, n)
}

// sliceOf is the own part of a version.
func (o *optimizer) sliceOf(v *version) device.State {
	return device.State{
		Weight: o.ownPart(v.weight),
		First:  v.moments[0],
		Second: v.moments[1],
	}
}

// wholeState is what the rank's next step depends on: the weights and the two
// moments, without the padding of what is not sharded.
func (o *optimizer) wholeState() []device.Floats {
	v := o.currentVersion()
	n := o.heldElements()
	return []device.Floats{v.weight.At(0, o.params), v.moments[0].At(0, n), v.moments[1].At(0, n)}
}

// heldElements is the elements of the own part, without padding where all have all.
func (o *optimizer) heldElements() int {
	if !o.isSharded() {
		return o.params
	}
	return o.grad.Len() / o.slices.Count()
}

// stateElements is how many numbers there are in state.
func (o *optimizer) stateElements() int {
	return o.params + 2*o.heldElements()
}

// shardOf is what this rank's replicas hold too: the own part of a version.
func (o *optimizer) shardOf(v *version) []device.Floats {
	s := o.sliceOf(v).At(0, o.heldElements())
	return []device.Floats{s.Weight, s.First, s.Second}
}

// reduceGradients enqueues the sum of the gradients over the replicas.
func (o *optimizer) reduceGradients() {
	if o.isSharded() && o.slices.Instances == 1 {
		o.q.ReduceScatterFloats(o.dp, o.ownPart(o.grad), o.grad)
		return
	}
	o.q.SumFloats(o.dp, o.grad)
}

// forgetVersions makes both versions count as empty.
func (o *optimizer) forgetVersions() {
	o.currentVersion().step, o.otherVersion().step = falcon.NoIteration, falcon.NoIteration
}

// versionAt is the version that iteration step begins with; nil if it is not held.
func (o *optimizer) versionAt(step int64) *version {
	for _, v := range o.versions {
		if v.step == step {
			return v
		}
	}
	return nil
}

// switchTo makes the version of step, which is held, the current one.
func (o *optimizer) switchTo(step int64) {
	if o.currentVersion().step != step {
		o.live = 1 - o.live
	}
}

// makeRoom makes the version that can be spared the current one, and empty:
// the one of that step, which is not wanted as it is, or the older one.
func (o *optimizer) makeRoom(step int64) {
	a := o.currentVersion()
	b := o.otherVersion()
	if b.step == step || a.step != step && b.step < a.step {
		o.live = 1 - o.live
	}
	o.currentVersion().step = falcon.NoIteration
}

// beginUpdate makes room for step number step (from 1): the older version is given up.
func (o *optimizer) beginUpdate() {
	o.otherVersion().step = falcon.NoIteration
}

// enqueueUpdate enqueues step number step (from 1) of elements from … from+n−1 of the
// own part, with the summed gradients scaled to a mean.
func (o *optimizer) enqueueUpdate(step int64, scale float64, from, n int) {
	to := o.sliceOf(o.otherVersion()).At(from, n)
	now := o.sliceOf(o.currentVersion()).At(from, n)
	o.q.Adam(o.adam, step, scale, to, now, o.ownPart(o.grad).At(from, n))
}

// finishUpdate makes the updated version the current one: it is whole on the device.
func (o *optimizer) finishUpdate(step int64) {
	o.live = 1 - o.live
	o.currentVersion().step = step
}

// gatherSlices enqueues the return of the other slices.
func (o *optimizer) gatherSlices() {
	if w := o.currentVersion().weight; o.isSharded() {
		o.q.GatherFloats(o.instance, w, o.ownPart(w))
	}
}
