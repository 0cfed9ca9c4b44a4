package alert

import (
	"strings"
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// toldOfJobs is how many causes of all jobs together are remembered.
const announcedJobs = 16 << 10

// OfJob is one of several jobs.
type OfJob struct {
	Name  string
	State *feed.State
	Quiet bool // its own console is open: what it has is no news here
}

// StepJobs is Step for several jobs: each cause names its job, the limits are those of one
// console, and what a job had when it was first heard of is not news.
func (c *Core) StepJobs(now time.Time, jobs []OfJob, in Input) Alert {
	var all, fresh []Cause
	for _, j := range jobs {
		causes := Causes(j.State, now, in.Price)
		for i := range causes {
			causes[i].ID, causes[i].Title = j.Name+"/"+causes[i].ID, named(causes[i].Title, j.Name)
		}
		all = append(all, causes...)
		news := c.unannounced(causes, j.State, announcedJobs)
		if j.State.Conn == feed.Connecting {
			continue
		}
		if c.heard == nil {
			c.heard = map[string]bool{}
		}
		if c.heard[j.Name] && !j.Quiet {
			fresh = append(fresh, news...)
		}
		c.heard[j.Name] = true
	}
	return c.decide(now, fresh, all, in)
}

// named puts a job's name into a title.
func named(title, job string) string {
	if job == "" {
		return title
	}
	return strings.Replace(title, "Falcon:", "Falcon "+job+":", 1)
}
