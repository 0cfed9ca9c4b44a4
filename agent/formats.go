package agent

import (
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
