package schedule

import "fmt"

// Texts of steps, for the failures of tests.
var kindNames = [...]string{"forward", "backward", "exchange"}

func (k Kind) String() string { return kindNames[k] }

func (s Step) String() string {
	switch {
	case s.Kind == Exchange:
		return s.Swap.String()
	case s.Work.Chunk > 0:
		return fmt.Sprintf("%s %d.%d", s.Kind, s.Work.Chunk, s.Work.Micro)
	}
	return fmt.Sprintf("%s %d", s.Kind, s.Work.Micro)
}

func (w Swap) String() string {
	s := ""
	for _, p := range []struct {
		name string
		part Part
	}{{"out", w.Out}, {"in", w.In}, {"grad_out", w.GradOut}, {"grad_in", w.GradIn}} {
		if p.part != None {
			s += fmt.Sprintf(" %s %d.%d", p.name, p.part.Chunk, p.part.Micro)
		}
	}
	return "exchange" + s
}

// InFlightMax is the most micro-batches whose activations a stage holds at
// once under OneFOneB, hence the number of activation slots it needs.
func InFlightMax(stage, stages, microBatches int) int {
	return min(stages-stage, microBatches)
}
