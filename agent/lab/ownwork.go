package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// workFile is what trainers read of the job's own work; see falcon-trainer's package fault.
const workFile = "work"

// lengthsMost bounds how much more work a micro-batch can be.
const lengthsMost = 10

// isOwnWork reports whether the event is what the job itself does, as its trainers are asked to.
func (e Event) isOwnWork() bool {
	return e.Data != "" || e.Lengths != 0
}

// checkOwnWork checks whose data come late, and how lengths differ.
func (s Scenario) checkOwnWork(e Event) error {
	switch {
	case !e.isOwnWork():
		return nil
	case e.OnAction != "":
		return errors.New("data and lengths have no on_action: trainers know of them beforehand")
	case e.Lengths != 0 && !(e.Lengths > 0 && e.Lengths <= lengthsMost):
		return fmt.Errorf("lengths is %v, it must be above 0 and at most %d", e.Lengths, lengthsMost)
	case e.Data == "":
		return nil
	}
	v, err := s.parseVictim(e.Data)
	switch {
	case err != nil:
		return fmt.Errorf("data is %q: %w", e.Data, err)
	case v.what != "rank":
		return fmt.Errorf("data is %q: only ranks wait for data", v)
	case !(e.ForMs > 0 && e.ForMs <= afterMost):
		return fmt.Errorf("for_ms is %v, it must be 1 to %d", e.ForMs, afterMost)
	}
	return nil
}

// announceWork tells the trainers, before they start, what the job itself will do.
func announceWork(sc Scenario, dir string) error {
	var b strings.Builder
	for _, e := range sc.Events {
		switch {
		case e.Data != "":
			v, err := sc.parseVictim(e.Data)
			if err != nil {
				return fmt.Errorf("lab: data of %q: %w", e.Data, err)
			}
			fmt.Fprintf(&b, "data %d %g %d %d\n",
				v.rank, e.ForMs, e.AtIteration, e.UntilIteration)
		case e.Lengths != 0:
			fmt.Fprintf(&b, "lengths %g %d %d\n", e.Lengths, e.AtIteration, e.UntilIteration)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return replaceFile(filepath.Join(dir, workFile), b.String())
}
