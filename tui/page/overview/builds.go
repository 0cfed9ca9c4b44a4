package overview

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// otherConsole names both ends where this console's messages and the engine's have different
// revisions.
func otherConsole(s *page.State) string {
	e := s.Snap().GetEngine()
	own := uint32(falconv1.ConsoleRevision)
	text := fmt.Sprintf("this console is falcon %s (messages %d), the engine is falcon %s (messages %d): ",
		version.Own(), own, e.GetVersion(), e.GetConsoles())
	switch {
	case e == nil || e.GetConsoles() == own:
		return ""
	case e.GetConsoles() > own:
		return text + "what is new there is not shown; use the engine's falcon here"
	}
	return text + "upgrade the engine"
}

// otherAgents name the nodes whose agents have messages of another revision than the engine,
// and what to do.
func otherAgents(s *page.State) string {
	e := s.Snap().GetEngine()
	var older, newer []string
	for _, n := range s.Snap().GetNodes() {
		name := fmt.Sprintf("%s (%s, messages %d)",
			n.GetNode(), n.GetVersion(), n.GetProtocol())
		switch {
		case e == nil || !n.GetConnected() || n.GetProtocol() == e.GetAgents():
		case n.GetProtocol() < e.GetAgents():
			older = append(older, name)
		default:
			newer = append(newer, name)
		}
	}
	ours := fmt.Sprintf(" than the engine (%s, messages %d): upgrade ", e.GetVersion(), e.GetAgents())
	if len(older) > 0 {
		return "older agents" + ours + phrase.Few(older, namesMost) + ", agents before hooks"
	}
	if len(newer) > 0 {
		return "newer agents" + ours + "the engine; " + phrase.Few(newer, namesMost)
	}
	return ""
}
