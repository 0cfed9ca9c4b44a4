package agent

import (
	"cmp"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// jobUser is whose processes are followed: anybody may start one that calls itself a rank
// of the job. It is the configured user, else the agent's own. An agent that runs as root
// takes the user who has the most ranks here, and keeps to him while any of them lives
// and for a minute more.
type jobUser struct {
	uid   int // -1 = not known so far
	fixed bool
	seen  time.Time // a process of his
}

// userKept is how long a user without processes stays the job's: those of a restart come.
const userKept = time.Minute

func newFindings(cfg Config, own *Folder) findings {
	f := findings{
		own:     own,
		ignored: map[string]bool{},
		refused: map[string]falcon.Unproven{},
		user:    jobUser{uid: os.Geteuid(), fixed: true},
	}
	if uid, err := lookUpUser(cfg.User); cfg.User != "" && err == nil {
		f.user.uid = uid
	} else if f.user.uid == 0 {
		f.user = jobUser{uid: -1}
	}
	return f
}

// lookUpUser is the number of a user who is named, or numbered.
func lookUpUser(name string) (int, error) {
	if uid, err := strconv.Atoi(name); err == nil && uid >= 0 {
		return uid, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(u.Uid)
}

// settle learns whose the job is.
func (u *jobUser) settle(now time.Time, followed []*process, live []ring.Entry) {
	switch {
	case u.fixed:
	case len(followed) > 0:
		u.uid = followed[0].uid
		u.seen = now
	case u.uid < 0 || now.Sub(u.seen) >= userKept:
		u.uid = -1
		files := map[int]int{}
		for _, e := range live {
			files[e.UID]++
		}
		if len(files) > 0 {
			u.uid = mostOf(files)
			u.seen = now
		}
	}
}

// mostOf is the user with the most files; of several, the one with the lowest number.
func mostOf(files map[int]int) int {
	return slices.MaxFunc(slices.Collect(maps.Keys(files)), func(x, y int) int {
		return cmp.Or(cmp.Compare(files[x], files[y]), cmp.Compare(y, x))
	})
}

func (u *jobUser) isForeign(uid int) bool {
	return u.uid >= 0 && uid != u.uid
}
