package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/proof"
	"github.com/failslow/falcon/agent/ring"
)

// errStranger is wrapped where a process is not proven to be the one that made a file:
// it is neither followed nor signalled.
var errStranger = errors.New("it is not proven to be the process that made the file")

// provenExit watches a process that is proven by what its file says.
type provenExit struct {
	Exit
	prover *proof.Prover
	pid    int
	claim  proof.Claim
}

// Exit takes the proof after the watch has begun: a number that another process has got
// meanwhile does not stand it, and the watch stays with the process that it was begun on.
func (d *shmDir) Exit(pid int, made ring.Header, ended func()) (Exit, error) {
	w, err := watchExit(pid, ended, d.old)
	if err != nil {
		return nil, err
	}
	x := &provenExit{
		Exit:   w,
		prover: d.prover,
		pid:    pid,
		claim:  made.Claim,
	}
	if err := x.checkProof(); err != nil {
		w.Close()
		return nil, err
	}
	return x, nil
}

func (x *provenExit) checkProof() error {
	found, why := x.prover.Check(x.pid, x.claim)
	select {
	case <-x.Gone():
		return os.ErrProcessDone
	default:
	}
	switch {
	case why != falcon.UnprovenNone:
		return fmt.Errorf("%w: %s", errStranger, falcon.Unproven{
			Reason: why,
			Rank:   -1,
			PID:    x.pid,
		})
	case found.PID == 0 && !x.prover.Alive(x.pid):
		return os.ErrProcessDone // the watch has not heard of its end yet
	case found.PID == 0:
		return fmt.Errorf("%w: process %d has started another program, or is another one", errStranger, x.pid)
	}
	return nil
}

// Signal proves the process once more.
func (x *provenExit) Signal(sig unix.Signal) error {
	if err := x.checkProof(); err != nil {
		return err
	}
	return x.Exit.Signal(sig)
}
