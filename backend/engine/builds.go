package engine

import (
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
)

const formatsMost = 16 // that are kept of an agent

// agentCame is the news of an agent by its version; of one whose messages have another
// revision than this engine's it says what to do.
func agentCame(h *falconv1.Hello, own string) newsKind {
	k := agentsCame(clean(h.GetVersion()))
	advice := ""
	switch p := h.GetProtocol(); {
	case p < falconv1.ProtocolRevision:
		advice = "its messages have revision %d and those of this engine (%s) %d: upgrade the agent, and agents before hooks"
	case p > falconv1.ProtocolRevision:
		advice = "its messages have revision %d and those of this engine (%s) %d: upgrade the engine"
	default:
		return k.ofJob(h.GetJob(), own)
	}
	advice = fmt.Sprintf(
		advice,
		h.GetProtocol(),
		version.Own(),
		uint32(falconv1.ProtocolRevision),
	)
	advice = ": " + strings.ReplaceAll(advice, "%", "%%")
	return newsKind{1, k.one + advice, k.many + advice}
}

// ofJob says where an agent follows another job than the engine's own.
func (k newsKind) ofJob(job, own string) newsKind {
	if !followsOther(job, own) {
		return k
	}
	advice := fmt.Sprintf(
		": follows job %q, and this engine's is %q: make job: the same in agent.yaml and falcon.yaml",
		clean(job), own,
	)
	advice = strings.ReplaceAll(advice, "%", "%%")
	return newsKind{1, k.one + advice, k.many + advice}
}

// ownBuild is what this engine tells consoles of itself.
func ownBuild() *falconv1.Build {
	return &falconv1.Build{
		Version:  version.Own(),
		Agents:   falconv1.ProtocolRevision,
		Consoles: falconv1.ConsoleRevision,
	}
}

// formatViews are an agent's formats as it names them.
func formatViews(h *falconv1.Hello) []*falconv1.Format {
	var out []*falconv1.Format
	for _, f := range h.GetFormats()[:min(formatsMost, len(h.GetFormats()))] {
		out = append(out, &falconv1.Format{
			Name:   clean(f.GetName()),
			Number: f.GetNumber(),
			Oldest: f.GetOldest(),
		})
	}
	return out
}
