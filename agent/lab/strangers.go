package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent"
)

// strangerUser owns what another user of the machine has made, where the lab runs as root.
const strangerUser = 61234

// strangerEvery is how often the stranger looks for names that have come to be free.
const strangerEvery = 50 * time.Millisecond

// inviteStrangers has everybody write into a node's shared-memory folder, as into /dev/shm,
// and a stranger take every name there that the node's agent uses: before it starts, and
// again while it runs. What it makes differs by node.
func inviteStrangers(l *Lab, n NodeSetup) error {
	if err := os.Chmod(n.ShmDir, 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	for _, name := range agent.SharedNames(Job, string(n.Node)) {
		if err := takeName(filepath.Join(n.ShmDir, name), n.Index); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	l.wait.Go(func() { keepTaking(l, n) })
	return nil
}

func keepTaking(l *Lab, n NodeSetup) {
	tick := time.NewTicker(strangerEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.closing.Done():
			return
		case <-tick.C:
		}
		for _, name := range agent.SharedNames(Job, string(n.Node)) {
			_ = takeName(filepath.Join(n.ShmDir, name), n.Index) // the folder goes with the lab
		}
	}
}

// takeName puts something of a stranger's at a path where nothing is. Another user can put
// nothing into the agent's own folder.
func takeName(path string, kind int) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	var err error
	switch kind % 4 {
	case 0:
		err = os.MkdirAll(filepath.Join(path, "x"), 0o755)
	case 1:
		err = os.WriteFile(path, nil, 0o600)
	case 2:
		err = os.Symlink("/etc/passwd", path)
	default:
		err = unix.Mkfifo(path, 0o600)
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Lchown(path, strangerUser, strangerUser)
	}
	if errors.Is(err, os.ErrExist) {
		return nil // the agent was quicker
	}
	return err
}
