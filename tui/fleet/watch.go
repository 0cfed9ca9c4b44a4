package fleet

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
)

// watch follows one engine; its goroutine owns everything but what is atomic.
type watch struct {
	fleet  *Fleet
	target Target
	first  time.Duration // before the first pull: 100 engines are not asked at once
	ctx    context.Context
	stop   context.CancelFunc
	kick   chan struct{} // capacity 1: pull now
	conn   atomic.Pointer[grpc.ClientConn]
	job    atomic.Pointer[Job]
}

// stagger is between the first pulls of two engines.
const stagger = 5 * time.Millisecond

func newWatch(f *Fleet, t Target, n int) *watch {
	w := &watch{
		fleet:  f,
		target: t,
		first:  time.Duration(n) * stagger,
		kick:   make(chan struct{}, 1),
	}
	w.ctx, w.stop = context.WithCancel(f.ctx)
	w.job.Store(&Job{
		Name:    t.Name,
		Address: t.Address,
		Found:   t.Found,
		State:   &feed.State{Snap: &falconv1.SnapshotReply{}, Since: f.now()},
	})
	return w
}

func (w *watch) run() {
	defer w.hangUp()
	_, _ = w.connect() // a console of it can be opened before the first pull, which tells why not
	w.pause(w.first)
	for w.ctx.Err() == nil {
		w.pullOnce()
		w.pause(w.period())
	}
}

func (w *watch) hangUp() {
	if cc := w.conn.Swap(nil); cc != nil {
		_ = cc.Close() // nothing depends on how it ends
	}
}

// pause waits for d, or until a pull is wanted now.
func (w *watch) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
	case <-w.kick:
	case <-timer.C:
	}
}

// period is how long to wait after a pull.
func (w *watch) period() time.Duration {
	j := w.job.Load()
	switch {
	case j.Tries > 0:
		return j.Retry.Sub(w.fleet.now())
	case w.isOlder(j):
		return w.fleet.pace.older
	case w.fleet.isBlurred():
		return w.fleet.pace.blurred
	}
	return w.fleet.pace.active
}

func (w *watch) isOlder(j *Job) bool {
	return j.State.Conn == feed.Live && j.Revision == 0
}

// connect makes the connection where there is none; it asks nothing of the engine.
func (w *watch) connect() (*grpc.ClientConn, error) {
	if cc := w.conn.Load(); cc != nil {
		return cc, nil
	}
	cc, err := w.target.Dial()
	if err == nil {
		w.conn.Store(cc)
	}
	return cc, err
}

func (w *watch) pullOnce() {
	cc, err := w.connect()
	if err != nil {
		w.failed(clean.String(err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.fleet.pace.pull)
	defer cancel()
	q := &falconv1.SnapshotRequest{
		Rank:   feed.WorstRank,
		Brief:  true,
		Packed: true,
	}
	if j := w.job.Load(); w.isOlder(j) {
		q.KnownVersion = j.State.Snap.GetVersion()
	}
	reply, err := falconv1.NewConsoleClient(cc).Snapshot(ctx, q, grpc.MaxCallRecvMsgSize(messageMax))
	switch {
	case w.ctx.Err() != nil:
	case err != nil:
		w.failed(whyAway(err))
	default:
		w.answered(reply)
	}
}

// whyAway is why an engine gives no picture, in a few words.
func whyAway(err error) string {
	why := feed.Reason(err)
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return "no access: " + why
	case codes.Unimplemented:
		return "what answers there is no Falcon engine: " + why
	case codes.ResourceExhausted:
		return "its picture is too large: " + why
	default:
		return withoutWrapping(why)
	}
}

// withoutWrapping is what failed, without what gRPC puts around it.
func withoutWrapping(why string) string {
	for _, before := range []string{"Error while dialing: ", "Error while dialing "} {
		if _, rest, found := strings.Cut(why, before); found {
			return strings.TrimSuffix(rest, `"`)
		}
	}
	return why
}

// answered takes a picture over. Whoever sent it, no more of it is kept than a brief one holds.
func (w *watch) answered(r *falconv1.SnapshotReply) {
	old := w.job.Load()
	snap, revision := old.State.Snap, old.Revision
	if !r.GetUnchanged() {
		snap = convert.Brief(r)
		snap.Role = r.GetRole()
		snap.Actor = r.GetActor()
		revision = int(r.GetBrief().GetRevision())
		if b := r.GetBrief(); b != nil { // the engine has counted those too that it does not list
			snap.Brief.Open = max(b.GetOpen(), snap.Brief.Open)
			snap.Brief.Waiting = max(b.GetWaiting(), snap.Brief.Waiting)
			snap.Brief.LostGpuHours = b.GetLostGpuHours()
			snap.Brief.LossPerMinuteGpuHours = b.GetLossPerMinuteGpuHours()
		}
		clean.Message(snap)
	}
	w.publish(func(j *Job) {
		j.Revision = revision
		j.Tries = 0
		j.Retry = time.Time{}
		j.State.Snap, j.State.Received = snap, w.fleet.now()
		enter(j.State, feed.Live, "", w.fleet.now())
	})
}

// failed keeps the last picture and says since when and why there is no newer one.
func (w *watch) failed(why string) {
	now := w.fleet.now()
	w.publish(func(j *Job) {
		back := min(w.fleet.pace.backoff<<min(j.Tries, backoffs), maxBackoff)
		j.Tries++
		j.Retry = now.Add(back/2 + rand.N(back)) // engines that went together are not asked together
		to := feed.Lost
		if j.State.Received.IsZero() {
			to = feed.Connecting
		}
		enter(j.State, to, why, now)
	})
}

func enter(s *feed.State, c feed.Conn, why string, now time.Time) {
	if s.Conn != c {
		s.Since = now
	}
	s.Conn, s.Err = c, why
}

// publish changes a copy of the job and makes it the newest.
func (w *watch) publish(change func(*Job)) {
	j := *w.job.Load()
	s := *j.State
	j.State = &s
	change(&j)
	w.job.Store(&j)
	feed.Signal(w.fleet.changed)
}
