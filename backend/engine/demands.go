package engine

// recoveryDemands takes operators' decisions on recoveries, and what they ask
// for by hand: a rank replaced, a node fenced, a fence lifted.
type recoveryDemands struct {
	cfg       *Config
	mem       *memory
	rec       Recoverer
	batch     *batch
	oplog     *operatorLog
	cluster   *clusterView
	status    *jobStatus
	describer *jobDescriber
}
