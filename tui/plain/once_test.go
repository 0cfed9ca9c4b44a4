package plain

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/link"
)

// forgetful is an engine that knows no incident, and says so as the real one.
type forgetful struct{ falconv1.ConsoleClient }

func (forgetful) Incidents(
	context.Context,
	*falconv1.IncidentsRequest,
	...grpc.CallOption,
) (*falconv1.IncidentsReply, error) {
	return nil, status.Error(codes.NotFound, `engine: not found: no incident "INC-0042"`)
}

// A script learns by the exit code that the incident it asked for is not there.
func TestOnceFailsForAnAbsentIncident(t *testing.T) {
	c := forgetful{client(t, enginetest.New(enginetest.Options{}))}
	var out strings.Builder
	err := Once(t.Context(), c, &out, false, &link.Target{
		Kind: link.Incident,
		ID:   "INC-0042",
	})
	if err == nil || err.Error() != `INC-0042 can't be shown: no incident "INC-0042"` || out.Len() > 0 {
		t.Errorf("%v, and %q was written", err, out.String())
	}
	err = Once(t.Context(), c, &out, false, &link.Target{
		Kind: link.Page,
		Job:  "other",
	})
	if err == nil ||
		err.Error() != "the link is to job other, and this engine's is gpt-lab" ||
		out.Len() > 0 {
		t.Errorf("%v, and %q was written", err, out.String())
	}
	if err := Once(t.Context(), c, &out, false, nil); err != nil || out.Len() == 0 {
		t.Errorf("without a place: %v, and %q was written", err, out.String())
	}
}
