package feed

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// NodeOf is the node of a device.
func NodeOf(device string) string { return string(falcon.Device(device).Node()) }

// Stamp is when an event happened, UTC to the second.
func Stamp(e *falconv1.EventLine) string {
	return time.Unix(0, e.GetAtUnixNs()).UTC().Format(time.RFC3339)
}
