package evaltest

// Mix is one of the paper's populations of jobs.
type Mix struct {
	Name     string
	Jobs     int     // how many the paper had
	Slow     int     // of which so many were slow
	CPU      float64 // shares of the causes among the slow; the rest is congestion
	GPU      float64
	Both     float64
	Ladder   float64 // share of the slow whose onset is a ladder of steps below 10 %
	Start    float64 // share of the slow that are slow from the first iteration on
	MsPer    float64 // healthy milliseconds per iteration
	Minutes  float64 // mean length of a spell
	Deepest  float64 // greatest excess, 1 = twice as long
	CoVFrom  float64 // iteration noise
	CoVTo    float64
	SpellMax int // most spells in a job
}

const (
	shallowest = 0.12 // least excess of a spell
	shortest   = 30.0 // seconds that a spell lasts at least
)

// SingleNode is the mix of tables 1 and 4.
func SingleNode() Mix {
	return Mix{
		Name:     "single node",
		Jobs:     392,
		Slow:     6,
		CPU:      4.0 / 6,
		GPU:      2.0 / 6,
		Start:    1.0 / 6,
		MsPer:    480,
		Minutes:  10,
		Deepest:  0.6,
		CoVFrom:  0.01,
		CoVTo:    0.03,
		SpellMax: 2,
	}
}

// FourNode is the mix of tables 1 and 5.
func FourNode() Mix {
	return Mix{
		Name:     "four nodes",
		Jobs:     107,
		Slow:     43,
		CPU:      1.0 / 43,
		Ladder:   1.0 / 44,
		MsPer:    1800,
		Minutes:  24,
		Deepest:  1,
		CoVFrom:  0.01,
		CoVTo:    0.03,
		SpellMax: 2,
	}
}

// AtScale is the mix of table 1's jobs of 512 GPUs and more.
func AtScale() Mix {
	return Mix{
		Name:     "at scale",
		Jobs:     27,
		Slow:     16,
		Both:     3.0 / 16,
		Ladder:   1.0 / 6,
		Start:    0.2,
		MsPer:    3500,
		Minutes:  72,
		Deepest:  9,
		CoVFrom:  0.01,
		CoVTo:    0.05,
		SpellMax: 3,
	}
}

// share is the share of slow jobs.
func (m Mix) share() float64 {
	return float64(m.Slow) / float64(m.Jobs)
}

// least is how many iterations the shortest spell lasts.
func (m Mix) least() int {
	return int(shortest * 1000 / m.MsPer)
}
