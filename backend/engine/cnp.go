package engine

import (
	"time"

	"github.com/failslow/falcon"
)

// cnpUnmeasured is the rate of a port that was not looked at twice in time.
const cnpUnmeasured = -1

// cnpFresh is how long a rate is shown after the reading that it comes from; agents
// look every second by default, and every minute at the least.
const cnpFresh = 2 * time.Minute

// cnpRate is the growth of a port's congestion notification packets between its
// two newest looks.
type cnpRate struct {
	perS   float64 // packets a second, sent and handled; cnpUnmeasured = none
	seenAt time.Time
}

// cnpAfter is the rate between two looks at one port. A look that could not be
// taken, was taken at the same moment or before, or shows a port that began to
// count from zero measures nothing.
func cnpAfter(old, now falcon.NICReading) float64 {
	seconds := float64(now.AtNs-old.AtNs) / 1e9
	if seconds <= 0 ||
		now.CNPSent < old.CNPSent ||
		now.CNPHandled < old.CNPHandled ||
		!cnpCounted(old) ||
		!cnpCounted(now) {
		return cnpUnmeasured
	}
	return (float64(now.CNPSent-old.CNPSent) + float64(now.CNPHandled-old.CNPHandled)) / seconds
}

// cnpCounted distinguishes a reading with counters from a failed one; drivers
// that lack some counter say so beside those that they have.
func cnpCounted(r falcon.NICReading) bool {
	return r.Err == "" ||
		r.Active ||
		r.CNPSent|r.CNPHandled|r.XmitBytes|r.RcvBytes > 0
}
