package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/bars"
)

// Verbs of Recover about what may be used as a spare.
const (
	verbBar   = "bar"
	verbUnbar = "unbar"
)

// bar keeps a node or device from being used as a spare, or ends that. Ranks that are on it stay.
func (rd *recoveryDemands) bar(now time.Time, who Actor, q *falconv1.RecoverRequest, reason string) error {
	e := bars.Entry{
		Name:    q.GetNode(),
		Lift:    q.GetVerb() == verbUnbar,
		Reason:  reason,
		By:      clean(who.Name),
		AtNs:    now.UnixNano(),
		UntilNs: now.Add(time.Duration(q.GetForNs())).UnixNano(),
	}
	if err := rd.state.bars.Check(now, e); err != nil {
		return refusedBar(err)
	}
	if err := rd.knownName(e); err != nil {
		return err
	}
	if !e.Lift && !q.GetAnyway() {
		if err := rd.leavesShort(now, e); err != nil {
			return err
		}
	}
	rd.batch.addRecords(record(now, kindBar, e))
	rd.oplog.audit(now, who, auditEntry{
		Verb:   q.GetVerb(),
		About:  e.Name,
		Reason: barReason(now, e),
	})
	rd.describer.recheck = true
	return nil
}

func refusedBar(err error) error {
	if errors.Is(err, bars.ErrStale) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

func barReason(now time.Time, e bars.Entry) string {
	if e.Lift {
		return e.Reason
	}
	return "until " + clockText(now, e.UntilNs) + ": " + e.Reason
}

// knownName refuses names that mean nothing: a mistyped bar would keep nothing out.
func (rd *recoveryDemands) knownName(e bars.Entry) error {
	node := barredNode(e.Name)
	if e.Lift ||
		rd.nodes.Node(node) != nil ||
		slices.Contains(rd.cluster.jobNodes(), node) {
		return nil
	}
	return fmt.Errorf("%w: no agent of a node %q has been seen, and the job has no rank there",
		ErrNotFound, clean(string(node)))
}

// barredNode is the node of a bar's name.
func barredNode(name string) falcon.Node {
	if n := falcon.Device(name).Node(); n != "" {
		return n
	}
	return falcon.Node(name)
}

// leavesShort refuses a bar that takes the last spare, unless that is said to be meant.
func (rd *recoveryDemands) leavesShort(now time.Time, e bars.Entry) error {
	spares := rd.cluster.launchMeans().spares
	if n := barredNode(e.Name); len(spares) == 1 && spares[0] == n {
		return fmt.Errorf(
			"%w: %s is the last spare: a node that fails could not be replaced while it is barred; ask for it anyway if that is meant",
			ErrRefused, n,
		)
	}
	return nil
}

// clockText is a moment for a line of text, with its day where that is another.
func clockText(now time.Time, ns int64) string {
	at := time.Unix(0, ns).UTC()
	if d := at.Sub(now); d > 20*time.Hour || d < -20*time.Hour {
		return at.Format("2 Jan 15:04Z")
	}
	return at.Format("15:04Z")
}

// barredSpare is why a node is not used as a spare, "" where it may be.
func (c *clusterView) barredSpare(n falcon.Node) string {
	now := c.cfg.Now()
	b, barred := c.state.bars.Node(now, n)
	if !barred {
		if why := c.leftOn(now, n); why != "" {
			return why + ": end it"
		}
		return ""
	}
	return fmt.Sprintf("%s is barred by %s until %s: %s",
		b.Name, b.By, clockText(now, b.UntilNs), b.Reason)
}

func (m *journalState) barViews(now time.Time) []*falconv1.Bar {
	var out []*falconv1.Bar
	for _, b := range m.bars.At(now) {
		out = append(out, &falconv1.Bar{
			Name:        b.Name,
			Reason:      b.Reason,
			By:          b.By,
			SinceUnixNs: b.SinceNs,
			UntilUnixNs: b.UntilNs,
		})
	}
	return out
}
