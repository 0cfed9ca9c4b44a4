package engine

import "time"

// planDelivery brings the planner's orders and the detector's profile windows to
// the ranks when nothing else uses the job, and judges what becomes of orders.
type planDelivery struct {
	*shared

	arbiter     *arbiter
	describer   *jobDescriber
	validations *validationQueue
	views       *stateViews

	left    func(now time.Time, o *order, resume int64) // ranks leave with a checkpoint
	waiting []*window                                   // until the job goes on
}
