package engine

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon/mitigate"
)

// Errors of this package.
var (
	ErrStopped  = errors.New("engine: stopped")
	ErrNotFound = errors.New("engine: not found")
	ErrStale    = errors.New("engine: stale")
	ErrInvalid  = errors.New("engine: invalid")
	ErrDenied   = errors.New("engine: denied")
	ErrRefused  = errors.New("engine: refused")
	ErrDisk     = errors.New("engine: the journal can't be written")
)

func noIncident(id string) error {
	return fmt.Errorf("%w: no incident %q; list them with: falcon incident list", ErrNotFound, clean(id))
}

// refused is the planner's refusal: ErrInvalid where the request lacks something,
// ErrStale where the job is not as the caller saw it.
func refused(err error) error {
	if errors.Is(err, mitigate.ErrNoReason) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", ErrStale, err)
}

func noRecovery(id string) error {
	return fmt.Errorf("%w: no recovery %q; list them with: falcon recovery list", ErrNotFound, clean(id))
}
