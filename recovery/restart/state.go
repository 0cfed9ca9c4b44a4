package restart

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Phase is how far a restart has come.
type Phase string

// Phases of a restart.
const (
	Leaving   Phase = "leaving"   // the checkpoint is written; the processes are to end
	Left      Phase = "left"      // all have ended; the planner is to say what is launched
	Launching Phase = "launching" // nodes were ordered to start processes
	Clearing  Phase = "clearing"  // the launch has failed; what it started is to end
	Over      Phase = "over"
)

// Default bounds of the phases.
const (
	LeaveWait  = 2 * time.Minute  // from the checkpoint's outcome to the last process's end
	LaunchWait = 10 * time.Minute // from the launch to all ranks of the new job epoch
	LeftWait   = 5 * time.Minute  // for a plan, before the job counts as ended
)

// Config bounds the phases of a restart; zero values mean the defaults.
type Config struct {
	LeaveWait  time.Duration `yaml:"leave"`  // LeaveWait
	LaunchWait time.Duration `yaml:"launch"` // LaunchWait
}

// LeaveLimit is LeaveWait or its default.
func (c Config) LeaveLimit() time.Duration {
	return withDefault(c.LeaveWait, LeaveWait)
}

func (c Config) launchLimit() time.Duration {
	return withDefault(c.LaunchWait, LaunchWait)
}

func withDefault(v, otherwise time.Duration) time.Duration {
	if v > 0 {
		return v
	}
	return otherwise
}

// State is how far a restart has come, as journals keep it.
type State struct {
	Phase  Phase  `json:"phase"`
	Order  uint64 `json:"order,omitempty"` // the checkpoint, 0 = none
	Resume int64  `json:"resume_iteration,omitempty"`
	// of the phase; engines before this one count its time from here
	SinceNs  int64          `json:"since_unix_ns"`
	Epoch    uint64         `json:"job_epoch,omitempty"` // whose processes leave after their checkpoint
	Launch   *falcon.Launch `json:"launch,omitempty"`
	Commands []NodeCommand  `json:"commands,omitempty"` // of the launch
	// of the launch's commands: no node begins one later
	Deadline int64  `json:"deadline_unix_ns,omitempty"`
	Failed   string `json:"failed,omitempty"`
	// where the processes ran that leave; "" = not waited for
	Home falcon.Placement `json:"home,omitempty"`
	Next *falcon.Launch   `json:"next,omitempty"` // what a recovery has planned for when they have ended
	// ranks of the launch that have ended with success, ascending
	Ended []falcon.Rank `json:"ended,omitempty"`
	// what has the processes of before end; nil = they end by themselves
	Stop *Stop `json:"stop,omitempty"`
}

// Stop has nodes end what runs there of generations before this one.
type Stop struct {
	Generation uint64        `json:"generation"`
	Commands   []NodeCommand `json:"commands"`
}

// NodeCommand is the command that one node gets.
type NodeCommand struct {
	Node    falcon.Node `json:"node"`
	Command uint64      `json:"command"`
}

// Active reports whether a restart is in progress.
func (s State) Active() bool {
	return s.Phase != "" && s.Phase != Over
}

// ToldToLeave reports whether the processes of a job epoch were ordered to leave: that they
// end is not the job's end, whatever has become of the restart.
func (s State) ToldToLeave(epoch uint64) bool {
	return s.Epoch != 0 && s.Epoch == epoch
}

// NoteEnded notes that a rank of the launch has ended with success before the
// launch was the job. It reports whether that is new.
func (s *State) NoteEnded(generation uint64, r falcon.Rank) bool {
	if s.Launch == nil ||
		s.Launch.Generation != generation ||
		int(r) >= len(s.Launch.Placement) {
		return false
	}
	i, known := slices.BinarySearch(s.Ended, r)
	if !known {
		s.Ended = slices.Insert(slices.Clone(s.Ended), i, r)
	}
	return !known
}
