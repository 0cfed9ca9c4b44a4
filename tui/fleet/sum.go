package fleet

import (
	"fmt"
	"time"

	"github.com/failslow/falcon/tui/page"
)

// Sum is what all jobs come to.
type Sum struct {
	Ranks   int
	Of      [classes]int
	Waiting int  // jobs in which something waits for a person
	First   *Row // the worst of them, nil for none
	Lost    float64
	PerHour float64
}

// SumOf sums rows up, worst first.
func SumOf(rows []Row) Sum {
	var s Sum
	for i := range rows {
		r := &rows[i]
		s.Of[r.Class]++
		s.Ranks += r.World()
		s.Lost += r.Lost
		s.PerHour += r.PerHour
		if r.NeedsPerson() {
			s.Waiting++
			if s.First == nil {
				s.First = r
			}
		}
	}
	return s
}

// Parts counts jobs by class, worst first.
func (s Sum) Parts() []page.Line {
	var out []page.Line
	for c, n := range s.Of {
		if n > 0 {
			out = append(out, page.Line{
				Text: fmt.Sprintf("%d %s", n, Class(c)),
				Role: looks[c].role,
			})
		}
	}
	return out
}

// Lines is what is known of a job, as text.
func (r *Row) Lines(now time.Time, zone *time.Location) []string {
	out := []string{r.Name + ": " + r.Class.String()}
	for _, l := range r.Detail(now, zone) {
		out = append(out, "  "+l.Text)
	}
	return out
}
