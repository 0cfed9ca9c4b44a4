package mitigate

import "errors"

// What a job's processes have not declared is not ordered of them.
var (
	errUndeclared = errors.New(
		"the job's processes have not declared that they can do this: they have no adapter, or an older one (falcon_job_can)",
	)
	errCantSplit      = errors.New("the framework takes no other micro-batch counts")
	errCantPlace      = errors.New("the framework's processes can't take other ranks over")
	errCantCheckpoint = errors.New(
		"the framework writes no checkpoint when it is ordered to: give save to the adapter",
	)
)

// withoutLeave is why something is not ordered of processes that have not declared it.
func (j *jobState) withoutLeave(declared error) error {
	if !j.desc.Can.Declared {
		return errUndeclared
	}
	return declared
}
