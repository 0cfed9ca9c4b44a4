package falcon

// JobProfile is what one profile window says about the job's cost: what the
// planner's cost model is calibrated from (FALCON §4.3, §5.3).
type JobProfile struct {
	// by rank, device time outside communication per micro-batch; 0 = not measured
	SelfMs []float64       `json:"self_ms"`
	Groups []GroupTransfer `json:"groups"`
	Links  []LinkSpeed     `json:"links"` // those that were tested or judged, slow ones first
}

// GroupTransfer is what one group moves in one iteration. A pair of
// neighbouring pipeline stages counts as a group of two ranks.
type GroupTransfer struct {
	Dimension Dimension `json:"dimension"`
	Ranks     []Rank    `json:"ranks"` // ascending
	Op        Op        `json:"op"`    // most frequent kind of call
	Calls     int       `json:"calls"` // per iteration; of a pair, messages in both directions
	Bytes     int64     `json:"bytes"` // payload of one rank over all of them
	// per iteration: the least duration over the members, summed over the calls
	TransferMs float64 `json:"transfer_ms"`
}

// LinkSpeed compares a link with its class.
type LinkSpeed struct {
	Link  Link    `json:"link"`
	Ratio float64 `json:"ratio"` // time over the class's median: 1 = healthy, 8 = an eighth of the bandwidth
}
