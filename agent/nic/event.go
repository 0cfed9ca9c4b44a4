package nic

import (
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// DownFor is how long a port must be down to be reported by default: shorter falls
// are flaps, which retransmissions survive and counters show.
const DownFor = 5 * time.Second

// Event is a port that was up and has been down for so long that the traffic which it
// carried has failed. It is reported once for each fall.
type Event struct {
	NIC  falcon.NIC
	AtNs int64 // Unix ns
	Text string
}

// fall follows one port's state.
type fall struct {
	up        bool      // it was, at the newest reading that could tell
	from      time.Time // when it was found down first, zero while it is up or was never up
	announced bool
}

// update takes in one reading, and returns for how long a port that was up has been down,
// once it is long enough. A port that is gone counts as down.
func (f *fall) update(active bool, now time.Time, limit time.Duration) (down time.Duration, tell bool) {
	switch {
	case active:
		*f = fall{up: true}
		return 0, false
	case f.up:
		*f = fall{from: now}
	}
	if f.from.IsZero() || f.announced || now.Sub(f.from) < limit {
		return 0, false
	}
	f.announced = true
	return now.Sub(f.from), true
}

// watchFall reports a port's fall. A reading that could not read the port's state says
// nothing, but for a port whose files are gone.
func (p *Prober) watchFall(o *port, r falcon.NICReading) {
	unknown := strings.HasPrefix(r.Err, "state: ") || strings.HasPrefix(r.Err, "operstate: ")
	if p.cfg.Event == nil || unknown {
		return
	}
	limit := p.cfg.Down
	if limit <= 0 {
		limit = DownFor
	}
	if down, tell := o.fall.update(r.Active, time.Unix(0, r.AtNs), limit); tell {
		p.cfg.Event(Event{
			NIC:  o.name,
			AtNs: r.AtNs,
			Text: fmt.Sprintf("the link of %s has been down for %.0f s", o.device, down.Seconds()),
		})
	}
}
