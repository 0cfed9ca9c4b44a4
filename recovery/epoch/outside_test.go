package epoch

import "testing"

// A job is begun from outside where Falcon has not launched it, nothing of it is of a recovery, and no
// process of before is left in its place.
func TestFromOutside(t *testing.T) {
	was := Job{Epoch: 3, Processes: []string{"n0/10", "n1/11"}}
	for name, c := range map[string]struct {
		was, now Job
		want     bool
	}{
		"other processes":    {was, Job{Processes: []string{"n0/20", "n1/21"}}, true},
		"one is left":        {was, Job{Processes: []string{"n0/10", "n1/21"}}, false},
		"Falcon's launch":    {was, Job{Processes: []string{"n0/20/g4", "n1/21/g4"}, Generation: 4}, false},
		"a recovery's":       {was, Job{Processes: []string{"n0/20/g4", "n1/21/g4"}, Rejoined: 4}, false},
		"more ranks":         {was, Job{Processes: []string{"n0/20", "n1/21", "n2/22"}}, true},
		"there was no job":   {Job{}, Job{Processes: []string{"n0/20"}}, false},
		"the same processes": {was, Job{Processes: []string{"n0/10", "n1/11"}}, false},
	} {
		if got := c.now.FromOutside(c.was); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
