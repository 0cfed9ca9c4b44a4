package feed

import (
	"context"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// Incidents asks for incidents as a whole, older ones too: all, or the one
// named. The error's text is fit to be shown.
func (c *caller) Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	reply, err := c.client.Incidents(ctx, &falconv1.IncidentsRequest{Id: id})
	if err != nil {
		return nil, explain(err)
	}
	clean.Message(reply)
	return reply, nil
}

// NodeOf is the node of a device.
func NodeOf(device string) string { return string(falcon.Device(device).Node()) }

// Stamp is when an event happened, UTC to the second.
func Stamp(e *falconv1.EventLine) string {
	return time.Unix(0, e.GetAtUnixNs()).UTC().Format(time.RFC3339)
}
