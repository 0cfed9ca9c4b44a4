package lab

// heldIterations is how long a job with held faults may run: hours, so that an
// operator can look at it without haste. It ends when the operator leaves.
const heldIterations = 200_000

// holdScenario makes a job last until its operator leaves, and each fault that would end by itself
// until ReleaseFaults.
func holdScenario(l *Lab) {
	l.sc.Iterations = max(l.sc.Iterations, heldIterations)
	l.status.Iterations = l.sc.Iterations
}

// holdAll makes the faults that would end by themselves last until release.
func (f *faults) holdAll() {
	for _, o := range f.events {
		// the trainers know when that ends
		if o.until > o.from &&
			o.OnAction == "" &&
			o.Stall == "" &&
			!o.endsProcesses() &&
			!o.isOwnWork() {
			o.lasts = o.until - o.from
			o.until = 0
		}
	}
}

// release gives the held faults the length that the scenario says, from iteration next on for
// those that have begun.
func (f *faults) release(next int64) {
	for _, o := range f.events {
		if o.lasts > 0 {
			o.until = max(o.from, next) + o.lasts
			o.lasts = 0
		}
	}
}

// ReleaseFaults ends Options.Hold: the faults in force last once more as long as the scenario
// says, then clear. It returns at once.
func ReleaseFaults(l *Lab) {
	l.postEvent(event{call: func() { l.faults.release(l.records.done) }})
}
