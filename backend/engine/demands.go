package engine

// recoveryDemands takes operators' decisions on recoveries, and what they ask
// for by hand: a rank replaced, a node fenced, a fence lifted.
type recoveryDemands struct {
	*shared

	status    *jobStatus
	describer *jobDescriber
}
