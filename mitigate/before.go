package mitigate

import (
	"strings"

	"github.com/failslow/falcon"
)

// How the reasons of reverts begin that a person asked for, and of actions that another
// one took the place of.
const (
	undoneBy   = "undone by "
	replacedBy = "replaced by "
)

// revertKindOf converts an action of a journal that had no kinds of reverts: its reason says it.
func revertKindOf(a *falcon.Action) falcon.RevertKind {
	switch {
	case a.RevertKind != "" || a.RevertReason == "":
		return a.RevertKind
	case strings.HasPrefix(a.RevertReason, undoneBy):
		return falcon.RevertUndone
	case strings.HasPrefix(a.RevertReason, replacedBy):
		return falcon.RevertReplaced
	case a.MeasuredMs > 0:
		return falcon.RevertUnhelpful
	}
	return falcon.RevertJob
}
