package rivals

// Straggler is Megatron-LM's --log-straggler as an operator reads it: each log interval
// names the rank with the least estimated throughput. Megatron-LM itself sets no
// threshold and raises no alarm; the rule below is ours.
type Straggler struct {
	Below   float64 // least over greatest throughput, less than which a line is suspicious
	Running int     // suspicious lines running that name the same rank
	last    int
	count   int
}

// DefaultStraggler calls a rank slow that is last by 10 %, FALCON's definition of slow,
// in two lines running.
func DefaultStraggler() Straggler {
	return Straggler{Below: 0.9, Running: 2}
}

// StragglerLog is how many iterations a line covers: Megatron-LM's --log-interval.
const StragglerLog = 100

// Line takes in the estimated throughput of all ranks over one interval and returns the
// rank that is named, −1 for none.
func (s *Straggler) Line(throughput []float64) int {
	rank, seen, most := -1, 0, 0.0
	for r, v := range throughput {
		if !measured(v) {
			continue
		}
		seen++
		most = max(most, v)
		if rank < 0 || v < throughput[rank] {
			rank = r
		}
	}
	if seen < 2 {
		return -1
	}
	least := throughput[rank]
	switch {
	case least >= s.Below*most:
		s.count = 0
		return -1
	case s.count > 0 && rank == s.last:
		s.count++
	default:
		s.last, s.count = rank, 1
	}
	if s.count < s.Running {
		return -1
	}
	return rank
}
