package read

import (
	"regexp"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
)

// smiTable reads the table that nvidia-smi prints without arguments: two lines for each GPU.
type smiTable struct {
	m      *members
	host   string
	device string // whose second line follows
	table  int64
	ecc    []autopsy.Fault
	lost   []autopsy.Fault
}

var (
	smiFirst = regexp.MustCompile(
		`^\| +(\d+) +[^|]*?(?:On|Off|N/A) *\| *([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d) +\w+ *\| *(\S+) *\|`,
	)
	smiSecond = regexp.MustCompile(
		`^\| *(?:N/A|ERR!|\d+%) +\S+ +\S+ .*\| *(\d+)MiB */ *(\d+)MiB *\| *(\d+)% `,
	)
)

// take reports whether the line is of a table.
func (s *smiTable) take(l *line) bool {
	body := l.body
	if strings.HasPrefix(body, "| NVIDIA-SMI") {
		s.table++
		return true
	}
	if !strings.HasPrefix(body, "|") {
		return strings.HasPrefix(body, "+--") || strings.HasPrefix(body, "|==")
	}
	if x := smiFirst.FindStringSubmatch(body); x != nil {
		s.first(l, x)
		return true
	}
	x := smiSecond.FindStringSubmatch(body)
	if x == nil || s.device == "" {
		return s.device != "" && strings.Contains(body, "|")
	}
	// a GPU without memory in use is not of the job
	if used, all := whole(x[1], 0), whole(x[2], 1); usedShare*used >= all {
		who := autopsy.Who{Rank: -1, Host: s.host, Device: s.device}
		busy := whole(x[3], 0) + 1 // from 1, as a value of zero is none
		s.m.add(
			l,
			"utilisation",
			autopsy.IdleStands,
			"device",
			s.host+" "+s.device,
			who,
			s.table,
			decimal(busy),
		)
	}
	s.device = ""
	return true
}

const usedShare = 20 // of a GPU's memory one in so many parts is in use at least

func (s *smiTable) first(l *line, x []string) {
	s.device = x[1]
	who := autopsy.Who{Rank: -1, Host: s.host, Device: s.device}
	if n := whole(x[3], 0); n > 0 && len(s.ecc) < perKind {
		s.ecc = append(s.ecc, autopsy.Fault{
			Kind:   "ecc",
			Class:  autopsy.Hardware,
			Who:    who,
			Source: l.source(s.m.file),
			Text:   "nvidia-smi counts uncorrectable memory errors of the GPU since its driver began",
			Advice: seeGPU,
		})
	}
	if strings.Contains(l.text, "ERR!") && len(s.lost) < perKind {
		s.lost = append(s.lost, autopsy.Fault{
			Kind:   "gpu_error",
			Class:  autopsy.Hardware,
			Who:    who,
			Source: l.source(s.m.file),
			Text:   "the driver can't read the GPU",
			Advice: seeGPU,
		})
	}
}
