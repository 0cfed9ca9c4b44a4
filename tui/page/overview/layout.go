package overview

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/page"
)

// layoutText is how the ranks are laid out, and where that is known from.
func layoutText(s *page.State) string {
	text := fmt.Sprintf("tp %d × dp %d × pp %d", s.TP, s.DP, s.PP)
	if s.Roster.Mesh != (falcon.Mesh{}) {
		var dims []string
		for _, d := range s.Roster.Mesh.Dims() {
			dims = append(dims, fmt.Sprintf("%s %d", d.Name, d.Size))
		}
		text = fmt.Sprintf("%s (replicas: %d)", strings.Join(dims, " × "), s.DP)
	}
	switch from := s.Snap().GetJob().GetLayoutFrom(); {
	case from != "":
		return text + ", layout: " + from
	case s.Snap().GetJob().GetLayoutDoubt() != "":
		return fmt.Sprintf("layout unknown (%d × %d × %d for comparison)", s.TP, s.DP, s.PP)
	}
	return text
}

// layoutDoubt is why the layout is unknown, where the job's alarm does not say it.
func layoutDoubt(s *page.State) string {
	job := s.Snap().GetJob()
	if job.GetLayoutDoubt() == job.GetAlarm() {
		return ""
	}
	return job.GetLayoutDoubt()
}
