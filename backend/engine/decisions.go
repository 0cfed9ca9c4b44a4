package engine

// actionDecisions takes operators' decisions on the planner's actions: it checks
// that what is decided on is what the operator saw, and records who decided.
type actionDecisions struct {
	*shared
}
