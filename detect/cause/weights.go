package cause

import "math"

// Weights of proofs: how likely each alone makes the verdict right. They are
// judgement, ordered by how directly a proof shows the fault; docs and tests
// rely on the order, not on the second digit.
const (
	weightPeers     = 0.60 // self time or transfer against at least three peers
	weightOwn       = 0.50 // against the own healthy profile
	weightFew       = 0.35 // against one or two peers, without a healthy profile
	weightAwaited   = 0.30 // others wait for it over twice the transfer
	weightClock     = 0.50 // SM clock below the peers', for an unknown reason
	weightThrottle  = 0.85 // SM clock below the peers' and slowed for heat or by the brake
	weightXid       = 0.70 // XID or uncorrectable ECC error since the onset
	weightProbe     = 0.40 // the GPU answers its probe slowly
	weightAhead     = 0.30 // the host runs ahead of the device as far as ever, or further
	weightBehind    = 0.50 // the host is not ahead: the device waits for launches
	weightSteal     = 0.70 // the host gives the ranks less CPU than its peers do
	weightPressure  = 0.50 // pressure or throttling of the ranks' CPU above the peers'
	weightTogether  = 0.70 // all ranks, or all of a stage, slowed alike
	weightNormal    = 0.70 // and the counters are normal everywhere
	weightSelf      = 0.30 // network: no rank computes slowly
	weightLinkNamed = 0.20 // network: one link is left after the healthy ones

	weightGEMM        = 0.85 // the device multiplies matrices slowly
	weightGEMMBehind  = 0.50 // the same where its host launches late: that may be why
	weightGEMMHealthy = 0.40 // for the host: the device multiplies as fast as others
	weightLinkTest    = 0.85 // the link is slow in a test
	weightNIC         = 0.60 // the ports at both ends of a link are congested
	weightPort        = 0.40 // a port of the group runs below its peers' rate, or lost its link

	thinMargin     = 0.7 // factor on the timing weight without a clear margin
	againstFactor  = 0.8
	refusedFactor  = 0.9 // a test that was wanted did not come, or not whole
	droppedWeight  = 0.5 // of the share of lost timings, off the confidence
	confidenceMost = 0.99
)

// Thresholds on counters, always relative to peers.
const (
	clockGap      = 0.95 // of the peers' median share of the maximum clock
	throttleShare = 0.05 // of the time since the onset
	stealGap      = 0.10 // over the peers' median share
	pressureGap   = 0.10
	throttledGap  = 0.05
	aheadRatio    = 0.75 // host lead over the healthy one: still ahead
	behindRatio   = 0.50 // not ahead any more
	leadLeast     = 0.1  // ms: a host that never ran further ahead can't lose its lead
	stalledUs     = 5000 // a probe this slow, and
	stalledRatio  = 20.0 // this much slower than the peers' median, has stalled
	nicTimes      = 5.0  // a congestion counter's rate over its own past and the peers' median
	marksLeast    = 5.0  // per second
	resentLeast   = 1.0
	waitLeast     = 1000.0 // ticks per second
	rateGap       = 0.90   // of the peers' median link rate
	adoptRatio    = 1.05   // self time from which a slow test confirms a rank
	excessLeast   = 0.25   // of the worst tested link's excess
	crowdLeast    = 3      // peers that would do for a median, were most of them not slow
	gemmOver      = 1.2    // over the fastest tested GPU, where most of a rank's peers are slow (FALCON §4.4)
)

// combineProofs joins independent proofs.
func combineProofs(weights ...float64) float64 {
	doubt := 1.0
	for _, p := range weights {
		doubt *= 1 - p
	}
	return min(1-doubt, confidenceMost)
}

// Severity grades an incident 1 to 4 as the worst of three columns: the delay
// as a share of the healthy time (from 15 %, from 30 %, above 60 %), the
// congested links (from 2, from 4, all) and the slow GPUs (1, 2, 4).
func Severity(delay float64, links int, allLinks bool, slowGPUs int) int {
	grade := func(v float64, second, third, fourth float64) int {
		switch {
		case v >= fourth:
			return 4
		case v >= third:
			return 3
		case v >= second:
			return 2
		}
		return 1
	}
	worst := max(grade(delay, 0.15, 0.30, math.Nextafter(0.60, 1)), grade(float64(slowGPUs), 1, 2, 4))
	if allLinks && links > 1 {
		return 4
	}
	return max(worst, min(3, grade(float64(links), 2, 4, 4)))
}
