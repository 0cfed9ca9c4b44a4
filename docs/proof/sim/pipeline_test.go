package sim

import (
	"fmt"

	"github.com/failslow/falcon"
)

// pipeline is one replica's 1F1B schedule under way.
type pipeline struct {
	job     *Job
	replica int
	out     *played
	micro   int
	unitMs  []float64   // by stage: one micro-batch on the slowest lane, with this iteration's noise
	pace    []float64   // by stage: of that, without any device being slow
	free    []float64   // by stage: when its device is done
	done    []int       // by stage: ops run
	output  [][]float64 // by stage: when forward k was ready to be sent, -1 = not yet
	grads   [][]float64
}

func newPipeline(j *Job, replica int, pace float64, out *played) *pipeline {
	n, m := j.Layout.PP, int(j.Split[replica])
	p := &pipeline{
		job:     j,
		replica: replica,
		out:     out,
		micro:   m,
		unitMs:  make([]float64, n),
		pace:    make([]float64, n),
		free:    make([]float64, n),
		done:    make([]int, n),
	}
	for s := range n {
		p.pace[s] = j.noisy(j.StageMs*pace, j.RankCoV)
		if s == 0 || s == n-1 {
			p.pace[s] *= 1 + j.EndsExtra
		}
		p.unitMs[s] = p.pace[s] * p.slowest(s)
		p.output, p.grads = append(p.output, unset(m)), append(p.grads, unset(m))
	}
	return p
}

func unset(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = -1
	}
	return v
}

func (p *pipeline) slowest(stage int) float64 {
	worst := 1.0
	for t := range p.job.Layout.TP {
		worst = max(worst, p.job.slow[p.rank(stage, t)])
	}
	return worst
}

func (p *pipeline) rank(stage, lane int) falcon.Rank {
	return p.job.Layout.RankOf(falcon.Coord{TP: lane, DP: p.replica, PP: stage})
}

// run advances stages until all of them have run all their ops.
func (p *pipeline) run() {
	for left := 2 * p.micro * len(p.free); left > 0; {
		before := left
		for s := range p.free {
			for p.step(s) {
				left--
			}
		}
		if left == before {
			panic(fmt.Sprintf("sim: the schedule of replica %d blocked itself", p.replica))
		}
	}
}

// forwardShare is the forward pass's part of a micro-batch: the backward pass
// computes the gradients of inputs and of weights.
const forwardShare = 1.0 / 3

// step runs the next op of a stage, if what it needs is there: warm-up
// forwards, then one forward and one backward in turn, then the rest.
func (p *pipeline) step(s int) bool {
	if p.done[s] == 2*p.micro {
		return false
	}
	k, backward := p.op(s, p.done[s])
	from, ready := s-1, p.output
	if backward {
		from, ready = s+1, p.grads
	}
	if from >= 0 && from < len(p.free) {
		at := ready[from][k]
		if at < 0 {
			return false
		}
		p.receive(s, from, at)
	}
	share := forwardShare
	if backward {
		share = 1 - forwardShare
	}
	noise := p.job.noisy(share, p.job.OpCoV)
	p.free[s] += p.unitMs[s] * noise
	for t := range p.job.Layout.TP {
		r := p.rank(s, t)
		p.out.self[r] += p.pace[s] * noise * p.job.slow[r]
	}
	p.finish(s, k, backward)
	p.done[s]++
	return true
}

// op is the n-th op of a stage: its micro-batch and direction.
func (p *pipeline) op(s, n int) (k int, backward bool) {
	warm := min(len(p.free)-1-s, p.micro)
	if n < warm {
		return n, false
	}
	n -= warm
	if steady := p.micro - warm; n < 2*steady {
		return n/2 + warm*(1-n%2), n%2 == 1
	} else {
		return n - steady, true
	}
}

// receive waits for a message of another stage: the transfer begins when both
// ends are there.
func (p *pipeline) receive(s, from int, sentAt float64) {
	start := p.free[s]
	ms := p.job.edgeMs(p.rank(from, 0), p.rank(s, 0), p.job.ActivationMB)
	p.free[s] = max(start, sentAt) + p.job.noisy(ms, p.job.OpCoV)
	p.record(s, falcon.OpRecv, from, start, p.free[s])
}

// finish makes an op's output ready for the next stage in its direction.
func (p *pipeline) finish(s, k int, backward bool) {
	to, ready := s+1, p.output
	if backward {
		to, ready = s-1, p.grads
	}
	ready[s][k] = p.free[s]
	if to >= 0 && to < len(p.free) {
		p.record(s, falcon.OpSend, to, p.free[s], p.free[s]+eagerMs)
	}
}

// eagerMs is what a send takes from the device: its data is copied away.
const eagerMs = 0.01

func (p *pipeline) record(s int, op falcon.Op, peer int, start, end float64) {
	if p.out.sent == nil {
		return
	}
	for t := range p.job.Layout.TP {
		r := p.rank(s, t)
		p.out.sent[r] = append(p.out.sent[r], sent{
			comm:  p.job.comm(falcon.DimPP, r),
			op:    op,
			peer:  peer,
			bytes: int64(p.job.ActivationMB * 1e6),
			start: start,
			end:   end,
		})
	}
}
