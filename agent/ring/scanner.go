package ring

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/proof"
)

// Times of a Scanner. A process that can't be proven is looked for again soon, and then
// more and more seldom: a look goes through every process of the machine.
const (
	againSoon   = 200 * time.Millisecond
	againSeldom = 10 * time.Second
	beatsWithin = 5 * time.Second // a hook that has beaten since is alive
)

// Scanner finds the files of a job's processes, in a shared folder and in those of users below
// it (Folders), each with its process. Use it from one goroutine.
type Scanner struct {
	dir, job string
	prover   *proof.Prover
	known    map[string]*finding
}

// finding is what is known of one file.
type finding struct {
	dev, ino    uint64
	startMonoNs int64
	process     proof.Process // zero while it is not proven
	outcome     proof.Outcome // of the newest search
	unproven    falcon.Unproven
	wait        time.Duration
	again       time.Time
}

// Listing is what a folder holds.
type Listing struct {
	Live     []Entry // of processes that run, and are proven
	Stale    []Entry // left by processes that have ended
	Unproven []Entry // of processes that are not proven
}

// NewScanner returns a Scanner of a job's files (of all jobs' when it is empty) in dir.
func NewScanner(dir, job string) *Scanner {
	if job != "" {
		job = FileJob(job)
	}
	return &Scanner{
		dir:    dir,
		job:    job,
		prover: proof.NewProver("/proc"),
		known:  map[string]*finding{},
	}
}

// Discover looks once for the files of live and of dead processes.
func Discover(dir, job string) (live, stale []Entry, err error) {
	all, err := NewScanner(dir, job).Discover(time.Now())
	return all.Live, all.Stale, err
}

// Discover lists the files. One whose hook has not finished its header yet is left out.
func (s *Scanner) Discover(now time.Time) (Listing, error) {
	names, err := listFiles(s.dir)
	if err != nil {
		return Listing{}, err
	}
	s.prover.Renew()
	var out Listing
	here := map[string]bool{}
	for _, path := range names {
		e, ok := parseName(filepath.Split(path))
		if !ok || s.job != "" && e.Job != s.job {
			continue
		}
		here[e.Path] = true
		s.sortEntry(e, now, &out)
	}
	for path := range s.known {
		if !here[path] {
			delete(s.known, path)
		}
	}
	return out, nil
}

func (s *Scanner) sortEntry(e Entry, now time.Time, out *Listing) {
	h, err := readHead(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return // as a link, or a folder
	}
	e.StartMonoNs = h.startMonoNs
	e.UID = int(h.claim.UID)
	e.Device = h.device
	f := s.known[e.Path]
	if f == nil ||
		f.dev != h.claim.Dev ||
		f.ino != h.claim.Ino ||
		f.startMonoNs != h.startMonoNs {
		f = &finding{
			dev:         h.claim.Dev,
			ino:         h.claim.Ino,
			startMonoNs: h.startMonoNs,
		}
		s.known[e.Path] = f
	}
	switch s.lookAt(f, e, h, err, now) {
	case proof.Found:
		e.PID = f.process.PID
		out.Live = append(out.Live, e)
	case proof.Gone:
		out.Stale = append(out.Stale, e)
	case proof.Unproven:
		if e.Unproven = f.unproven; e.Unproven.Reason != falcon.UnprovenNone {
			out.Unproven = append(out.Unproven, e)
		}
	}
}

// lookAt brings a finding up to date.
func (s *Scanner) lookAt(f *finding, e Entry, h head, err error, now time.Time) proof.Outcome {
	if f.process.PID > 0 && s.prover.Runs(f.process) {
		return proof.Found
	}
	if f.process.PID == 0 && now.Before(f.again) {
		return f.outcome
	}
	f.process = proof.Process{}
	f.unproven = falcon.Unproven{
		Rank: falcon.Rank(max(h.rank, -1)),
		PID:  e.PID,
		Path: e.Path,
	}
	if err == nil && h.magic == shmMagic && h.whole {
		f.outcome = s.findProcess(f, h)
	} else {
		f.outcome = s.judgeUnread(f, e, h, err)
	}
	if f.outcome == proof.Unproven && f.unproven.Reason == falcon.UnprovenNone {
		return f.outcome // its hook still fills it: it is followed from its first calls on
	}
	f.wait = min(max(2*f.wait, againSoon), againSeldom)
	f.again = now.Add(f.wait)
	return f.outcome
}

// findProcess looks for the process of a file that says whose it is.
func (s *Scanner) findProcess(f *finding, h head) proof.Outcome {
	claim := h.claim
	if h.refusedCall != 0 {
		claim.Ino = 0 // it is mapped nowhere
	}
	process, outcome, why := s.prover.Find(claim)
	switch {
	case outcome == proof.Found:
		f.unproven.PID = process.PID
		if f.unproven.Reason = h.unreadable(&f.unproven); f.unproven.Reason != falcon.UnprovenNone {
			return proof.Unproven
		}
		f.process = process
	case why == falcon.UnprovenHidden && !beatsNow(h.heartbeatNs):
		return proof.Gone // or stopped: its file is kept for a while
	}
	f.unproven.Reason = why
	return outcome
}

func beatsNow(heartbeatNs int64) bool {
	silent := time.Duration(MonoNs() - heartbeatNs)
	return silent < beatsWithin && silent > -beatsWithin
}

// judgeUnread judges a file that says nothing of its process: another user's, one that
// its hook still fills, or a damaged one.
func (s *Scanner) judgeUnread(f *finding, e Entry, h head, err error) proof.Outcome {
	runs := s.prover.Numbered(e.PID)
	switch {
	case err != nil && runs:
		f.unproven.Reason = falcon.UnprovenUser
		f.unproven.User = int(h.claim.UID)
		f.unproven.JobUser = os.Geteuid()
	case err == nil && !runs && s.prover.SeesAll():
		return proof.Gone
	case err == nil && h.filled && runs:
		f.unproven.Reason = falcon.UnprovenDamaged
	}
	return proof.Unproven
}
