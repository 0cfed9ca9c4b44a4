package ship

import (
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of an endedList.
const (
	endedMost = 64 // the oldest go first
	// on one stream, two minutes: an engine that lives has recovered by then, and that is durable
	endedBeats = 60
)

// endedList keeps how processes ended lately. An engine acknowledges an end before it acts
// on it; one that was restarted in between must hear it again.
type endedList []endedState

type endedState struct {
	state *falconv1.RankState
	beats int // since this stream began
}

// add keeps an end, or what is known of it now.
func (l *endedList) add(st *falconv1.RankState) {
	*l = slices.DeleteFunc(*l, func(e endedState) bool {
		return e.state.Pid == st.Pid
	})
	*l = append(*l, endedState{state: st})
	*l = slices.Delete(*l, 0, max(0, len(*l)-endedMost))
}

// supersede forgets the ends that a living process is newer than.
func (l *endedList) supersede(st *falconv1.RankState) {
	*l = slices.DeleteFunc(*l, func(e endedState) bool {
		return e.state.Pid == st.Pid ||
			e.state.Rank == st.Rank && e.state.Generation < st.Generation
	})
}

// beat is one heartbeat on a stream.
func (l *endedList) beat() {
	for i := range *l {
		(*l)[i].beats++
	}
	*l = slices.DeleteFunc(*l, func(e endedState) bool { return e.beats > endedBeats })
}

// begin returns the ends that a new stream begins with: those that no frame is to bring still.
func (l *endedList) begin(waits func(*falconv1.RankState) bool) (out []*falconv1.AgentFrame) {
	for i := range *l {
		(*l)[i].beats = 0
		if waits((*l)[i].state) {
			continue
		}
		out = append(out, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: (*l)[i].state}})
	}
	return out
}
