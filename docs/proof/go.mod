// Proof is what produces figures and never ships: evaluations, rivals, emulated
// jobs and simulators. It has its own module, so that no program and no test of
// the product can come to depend on it.
module github.com/failslow/falcon/docs/proof

go 1.26.0

require (
	github.com/failslow/falcon v0.0.0
	golang.org/x/sys v0.49.0
	gonum.org/v1/gonum v0.17.0
)

replace github.com/failslow/falcon => ../..
