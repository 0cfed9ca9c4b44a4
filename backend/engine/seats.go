package engine

import "github.com/failslow/falcon"

// seatTable finds what is known of each rank's process, GPU and port once, not for every picture:
// names are long, and of a large job all ranks are shown ten times a second.
type seatTable struct {
	from seatsFrom
	list []seatNow
}

// seatNow is a rank's process, the newest look at its device and at the port that its traffic
// leaves by; nil = not known.
type seatNow struct {
	process *process
	gpu     *falcon.GPUReading
	port    *port
}

// seatsFrom is what the table follows from.
type seatsFrom struct {
	processes, devices uint64
	world              int
	placement          *falcon.Device
}

// of is the table by rank.
func (t *seatTable) of(j *job, p falcon.Placement, d *deviceReadings) []seatNow {
	from := seatsFrom{j.changes, d.seen, len(p), firstSeat(p)}
	if from == t.from {
		return t.list
	}
	t.from = from
	t.list = make([]seatNow, len(p))
	for i := range t.list {
		s := &t.list[i]
		s.process, s.gpu = j.ranks[falcon.Rank(i)], d.gpus[p[i]]
		if s.process != nil {
			s.port = d.nics[falcon.NIC(s.process.state.GetNic())]
		}
	}
	return t.list
}

// jobAlarms is what processes say that makes the picture doubtful.
type jobAlarms struct {
	at       uint64
	unhooked int
	traffic  string
}

// of looks at the processes where they have changed.
func (a *jobAlarms) of(j *job) *jobAlarms {
	if a.at == j.changes {
		return a
	}
	*a = jobAlarms{at: j.changes, traffic: j.unseenTraffic()}
	for _, p := range j.ranks {
		if p.state.GetAlive() && p.state.GetUnhooked() {
			a.unhooked++
		}
	}
	return a
}
