package recovery

// proof is what is known of whether the processes of a job whose nodes are all given up still
// train. One that has ended or parks is enough: none trains without it.
type proof struct {
	awaited bool
	given   bool
}

// await begins to wait for a proof; false = it did already.
func (p *proof) await() bool {
	waited := p.awaited
	p.awaited = true
	return !waited
}

// isAwaited reports whether one is awaited.
func (p *proof) isAwaited() bool { return p.awaited }

// came ends that wait.
func (p *proof) came() {
	p.awaited = false
}

// note takes a report of a process on a node that is given up.
func (p *proof) note(r Process) {
	p.given = p.given || !r.Alive || r.Park != nil
}

// isGiven reports whether one has ended or parks.
func (p *proof) isGiven() bool { return p.given }
