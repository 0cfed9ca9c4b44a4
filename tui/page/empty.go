package page

import "fmt"

// NoRanks is why no rank is known, and what to do about it.
func NoRanks(s *State) string {
	const ranks = "start the ranks with `falcon-agent run`"
	snap := s.Snap()
	switch n := len(snap.GetNodes()); {
	case s.Feed.Received.IsZero():
		return "no picture from the engine yet"
	case n > 0 && snap.GetJob().GetAlarm() != "":
		return "no ranks yet: " + snap.GetJob().GetAlarm()
	case n > 0:
		return fmt.Sprintf("no ranks yet: %s attached; %s", agentCount(n), ranks)
	case snap.GetListening() == "":
		return "no ranks yet: the engine listens on no network address; set `listen` in its configuration, so that agents can attach"
	default:
		return "no ranks yet: listening on " + snap.GetListening() +
			"; start `falcon-agent --config agent.yaml` on each node, then " + ranks
	}
}

func agentCount(n int) string {
	if n == 1 {
		return "1 agent is"
	}
	return fmt.Sprintf("%d agents are", n)
}
