package agent

import (
	"log/slog"

	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
)

// Formats are those that an agent shares with the hook, with the engine, and with the
// agents before and after it on its node.
func Formats() []version.Format {
	return []version.Format{
		{Name: "hook", Number: ring.Version, Oldest: ring.OldestVersion},
		{Name: "agents", Number: falconv1.ProtocolRevision, Oldest: 0},
		{Name: "launches", Number: launch.RecordVersion, Oldest: launch.RecordOldest},
		{Name: "handover", Number: handoverVersion, Oldest: handoverVersion},
		{Name: "notebook", Number: notebookVersion, Oldest: notebookVersion},
	}
}

// HelloFormats are Formats as the engine gets them.
func HelloFormats() []*falconv1.Format {
	var out []*falconv1.Format
	for _, f := range Formats() {
		out = append(out, &falconv1.Format{
			Name:   f.Name,
			Number: f.Number,
			Oldest: f.Oldest,
		})
	}
	return out
}

// engineSeen is the version in the newest welcome.
type engineSeen string

// note logs which engine this agent speaks to, once for each version of it, with what to do
// where the two have messages of different revisions.
func (e *engineSeen) note(w *falconv1.Welcome, log *slog.Logger) {
	if w.GetVersion() == string(*e) || w.GetVersion() == "" {
		return
	}
	*e = engineSeen(w.GetVersion())
	parts := []any{slog.String("engine", w.GetVersion()), slog.String("agent", version.Own())}
	switch p := w.GetProtocol(); {
	case p > falconv1.ProtocolRevision:
		log.Warn(
			"the engine's messages are newer than this agent's: upgrade the agent, and agents before hooks",
			append(parts,
				slog.Uint64("engine_messages", uint64(p)),
				slog.Int("agent_messages", falconv1.ProtocolRevision),
			)...,
		)
	case p < falconv1.ProtocolRevision:
		log.Warn(
			"the engine's messages are older than this agent's: upgrade the engine",
			append(parts,
				slog.Uint64("engine_messages", uint64(p)),
				slog.Int("agent_messages", falconv1.ProtocolRevision),
			)...,
		)
	default:
		log.Info("the engine has welcomed this agent", parts...)
	}
}

// NoteEngine logs which engine each new stream leads to, then calls next.
func NoteEngine(log *slog.Logger, job string, next func(*falconv1.Welcome)) func(*falconv1.Welcome) {
	var seen engineSeen
	return func(w *falconv1.Welcome) {
		seen.note(w, log)
		if w.GetJob() != "" && job != "" && w.GetJob() != job {
			log.Warn(
				"the engine's job has another name than this agent follows: where ranks are started with the engine's, nothing of it is watched; make job: the same in agent.yaml and falcon.yaml",
				slog.String("agent_job", job),
				slog.String("engine_job", w.GetJob()),
			)
		}
		next(w)
	}
}
