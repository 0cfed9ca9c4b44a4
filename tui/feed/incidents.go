package feed

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Stamp is when an event happened, UTC to the second.
func Stamp(e *falconv1.EventLine) string {
	return time.Unix(0, e.GetAtUnixNs()).UTC().Format(time.RFC3339)
}
