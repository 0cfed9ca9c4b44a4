package overview

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
)

// Both ends of a mismatch and the remedy are named; equal ends are no concern.
func TestOtherRevisionsAreNamed(t *testing.T) {
	own := uint32(falconv1.ConsoleRevision)
	agents := uint32(falconv1.ProtocolRevision)
	for name, c := range map[string]struct {
		engine     *falconv1.Build
		node       *falconv1.NodeView
		says, also string
	}{
		"equal": {
			&falconv1.Build{Version: "v9", Consoles: own, Agents: agents},
			&falconv1.NodeView{Node: "n1", Connected: true, Protocol: agents},
			"",
			"",
		},
		"of an older one": {nil, &falconv1.NodeView{Node: "n1", Connected: true, Protocol: 1}, "", ""},
		"newer engine": {
			&falconv1.Build{Version: "v9", Consoles: own + 1, Agents: agents},
			nil,
			"the engine is falcon v9",
			"use the engine's falcon here",
		},
		"older engine": {
			&falconv1.Build{Version: "v7", Consoles: own - 1, Agents: agents},
			nil,
			"falcon " + version.Own(),
			"upgrade the engine",
		},
		"older agent": {
			&falconv1.Build{Version: "v9", Consoles: own, Agents: 6},
			&falconv1.NodeView{Node: "n3", Connected: true, Version: "v8", Protocol: 4},
			"n3 (v8, messages 4)",
			"agents before hooks",
		},
		"newer agent": {
			&falconv1.Build{Version: "v9", Consoles: own, Agents: 6},
			&falconv1.NodeView{Node: "n3", Connected: true, Version: "w", Protocol: 8},
			"n3 (w, messages 8)",
			"upgrade the engine",
		},
		"lost agent": {
			&falconv1.Build{Version: "v9", Consoles: own, Agents: 6},
			&falconv1.NodeView{Node: "n3", Protocol: 4},
			"",
			"",
		},
	} {
		snap := &falconv1.SnapshotReply{Engine: c.engine}
		if c.node != nil {
			snap.Nodes = []*falconv1.NodeView{c.node}
		}
		s := &page.State{Feed: &feed.State{Snap: snap}}
		got := otherConsole(s) + otherAgents(s)
		if !strings.Contains(got, c.says) ||
			!strings.Contains(got, c.also) ||
			(c.says == "") != (got == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
