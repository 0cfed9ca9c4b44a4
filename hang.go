package falcon

// Hang is who holds up a job that stands still: no rank makes a call any more. It is
// evidence for people; nothing is fenced or ended on it.
type Hang struct {
	SinceNs    int64 // Unix time from which on no rank has made a call
	JudgedNs   int64
	Waiting    int // ranks that wait for others
	World      int
	Culprits   []HangPart
	Candidates []HangPart // of these no rank can be named alone
	Doubts     []string   // why, one sentence each
}

// HangPart is one thing that holds others up.
type HangPart struct {
	Kind    string // as package detect/trace/hang has it
	Ranks   []Rank
	Devices []Device // aligned with Ranks; empty where a rank's is not known
	Comm    string   // the communicator of the call, as people know it
	Members []Rank   // of the communicator
	Seq     int64    // the collective's number in it, from 1; 0 of sends and receives
	Call    string
	Waiting []Rank // that are in the call
	Text    string // one sentence
	Advice  string // what to do, one sentence
}

// Sure reports whether a rank is named.
func (h *Hang) Sure() bool {
	return h != nil && len(h.Culprits) > 0
}

// Named are the ranks that hold the job up, ascending within each part.
func (h *Hang) Named() []Rank {
	if h == nil {
		return nil
	}
	var out []Rank
	for i := range h.Culprits {
		out = append(out, h.Culprits[i].Ranks...)
	}
	return out
}
