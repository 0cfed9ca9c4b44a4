package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/recovery/restart"
)

// planDelivery brings the planner's orders and the detector's profile windows to
// the ranks when nothing else uses the job, and judges what becomes of orders.
type planDelivery struct {
	*shared

	arbiter     *arbiter
	describer   *jobDescriber
	validations *validationQueue
	views       *stateViews

	left func(now time.Time, o *order, resume int64) // ranks leave with a checkpoint
}

// windowsMax bounds the profile windows that are remembered.
const windowsMax = 64

// window is the detector's id of a profile window. On the wire it is named by its
// command id, which no restart gives out twice.
type window uint64

// addWindow puts a profile window into the outbox. Its life begins when it is sent.
func (pd *planDelivery) addWindow(now time.Time, id uint64, q detect.ProfileRequest) {
	pd.outbox.Put(outbox.Item{
		Class:    windowCommand,
		ID:       id,
		Deadline: now.Add(WindowLife),
		Life:     WindowLife,
		About:    window(q.Window),
		Body: func(falcon.Node) *falconv1.Command {
			return &falconv1.Command{Body: &falconv1.Command_Profile{Profile: &falconv1.ProfileCommand{
				Window:     id,
				Iterations: int32(q.Iterations),
				Columns:    true,
			}}}
		},
	})
	pd.outbox.Trim(windowCommand, windowsMax)
}

// maySend reports whether nothing holds an order or a profile window back.
func (pd *planDelivery) maySend(now time.Time, it *outbox.Item) bool {
	if o, is := it.About.(*order); is {
		return pd.arbiter.present(now).mayOrder(o.Order.Epoch, o.heavy())
	}
	return pd.arbiter.present(now).mayProfile()
}

// wantedBy reports whether a node that has connected again is sent a command. While
// a validation holds the job, what is not a recovery's waits for its end.
func (pd *planDelivery) wantedBy(now time.Time, n falcon.Node, it *outbox.Item) bool {
	switch about := it.About.(type) {
	case *nodeCommand:
		return !pd.state.fences.nodeFenced(n) && pd.cluster.wanted(about, n)
	case validate.Command:
		return pd.validations.machine.SendsAgain(about)
	case restart.NodeCommand:
		return !pd.validations.machine.Active() && pd.cluster.restartWants(it.Class)
	case *order: // nodes without ranks would refuse it
		return !pd.validations.machine.Active() &&
			slices.Contains(pd.cluster.jobNodes(), n) &&
			it.Sent()
	case window:
		return !pd.validations.machine.Active() && it.Sent() && !it.Expired(now)
	}
	return true
}

// sendWaiting sends the orders and profile windows that nothing holds back any more.
func (pd *planDelivery) sendWaiting(now time.Time) {
	for _, it := range append(pd.outbox.Items(orderCommand), pd.outbox.Items(windowCommand)...) {
		if !it.Sent() && pd.maySend(now, it) {
			pd.cluster.send(it.Send(now, pd.cluster.rankNodes()))
		}
	}
}

// resume sends orders again after something that has held the job: agents that
// lost them meanwhile take them, the others answer from memory.
func (pd *planDelivery) resume(now time.Time) {
	for _, it := range pd.outbox.Items(orderCommand) {
		it.Hold()
	}
	pd.sendWaiting(now)
}

// makeWay ends everything else that is being done with the job.
func (pd *planDelivery) makeWay(now time.Time, id string) {
	why := fmt.Sprintf("recovery %s has begun", id)
	pd.validations.machine.Step(now, validate.Stop{Why: why})
	for _, o := range pd.orders.open() {
		pd.withdraw(now, o, why)
	}
	for _, it := range pd.outbox.Items(windowCommand) {
		if !it.Sent() || !it.Expired(now) {
			it.Expire(now)
			pd.det.Step(now, detect.Profiled{
				Window:  uint64(it.About.(window)),
				Refused: why,
			})
		}
	}
	pd.outbox.Remove(func(it *outbox.Item) bool {
		return it.Class == windowCommand && !it.Sent()
	})
}

// orderDeadline leaves an order its life beyond what holds it back.
func (pd *planDelivery) orderDeadline(now time.Time, o falcon.Order) time.Time {
	at := pd.afterHold(now)
	if (&order{orderRecord: orderRecord{Order: o}}).heavy() &&
		pd.cluster.profiling(now, pd.outbox) {
		at = at.Add(WindowLife)
	}
	return at.Add(OrderLife)
}

// afterHold is when an order that is made now can go out at the latest.
func (pd *planDelivery) afterHold(now time.Time) time.Time {
	ends := pd.validations.machine.Ends()
	if pd.validations.machine.Active() && ends.After(now) {
		return ends
	}
	return now
}
