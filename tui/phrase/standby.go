package phrase

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Standbys is what a node keeps to take lost ranks, and what that costs; "" where it keeps
// none and wants none.
func Standbys(s *falconv1.Standbys) string {
	switch {
	case s.GetWanted() == 0:
		return ""
	case s.GetReady() == 0 && s.GetWhy() != "":
		return "no standby: " + s.GetWhy()
	case s.GetReady() == 0:
		return fmt.Sprintf("%d of %d standbys ready", s.GetReady(), s.GetWanted())
	}
	text := fmt.Sprintf("%d of %d standbys ready, %d MB of the host",
		s.GetReady(), s.GetWanted(), s.GetResidentMb())
	if s.GetWhy() != "" {
		text += "; " + s.GetWhy()
	}
	return text
}
