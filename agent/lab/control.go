package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoLab is returned where there is no lab to talk to.
var ErrNoLab = errors.New("lab: no lab is running; start one with `falcon lab run`")

// ErrManyLabs is returned where it is open which of several labs is meant.
var ErrManyLabs = errors.New("lab: several labs are running; name the folder of one")

const (
	controlTimeout = 5 * time.Second
	controlBytes   = 64 << 10
)

// Request is one wish to a running lab.
type Request struct {
	// status, stop, inject, kill, freeze, thaw; stop-agent, kill-agent, freeze-agent, thaw-agent,
	// cut-agent, stall; stop-engine, step-clock
	Op    string        `json:"op"`
	Event *Event        `json:"event,omitempty"`
	For   time.Duration `json:"for,omitempty"` // how long; the step itself for step-clock
	// rank number or node, for kill, freeze and thaw; a rank for stall, else all of them; for kill
	// also console and agent NODE; for agents their node
	Target string  `json:"target,omitempty"`
	Mode   CutMode `json:"mode,omitempty"` // of cut-agent
}

// Reply is the lab's answer.
type Reply struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// control serves requests on a socket.
type control struct {
	socket
	lab   *Lab
	turns int64 // of faults, where no iteration is reported; the lab's loop alone uses it
	// Stopped is closed when the lab was asked to stop.
	stopped  chan struct{}
	stopOnce sync.Once
}

func listenControl(l *Lab) (*control, error) {
	c := &control{lab: l, stopped: make(chan struct{})}
	// one at a time: requests are rare and short
	if err := c.listen(controlPath(l.place.dir), c.answerRequest); err != nil {
		return nil, err
	}
	return c, nil
}

func controlPath(dir string) string {
	return filepath.Join(dir, "control.sock")
}

func (c *control) answerRequest(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(controlTimeout))
	sc := bufio.NewScanner(conn)
	sc.Buffer(nil, controlBytes)
	if !sc.Scan() {
		return
	}
	var req Request
	reply := Reply{}
	if err := json.Unmarshal(sc.Bytes(), &req); err != nil {
		reply.Error = "the request is no JSON"
	} else if err := c.runRequest(req); err != nil {
		reply.Error = err.Error()
	} else {
		s := c.lab.Status()
		reply.Status = &s
	}
	_ = json.NewEncoder(conn).Encode(reply)
}

func (c *control) runRequest(req Request) error {
	switch req.Op {
	case "status":
		return nil
	case "stop":
		c.stopOnce.Do(func() { close(c.stopped) })
		return nil
	case "inject":
		return c.injectFault(req)
	case "kill":
		return c.strikeNow(Event{Kill: req.Target})
	case "freeze":
		return c.freezeFor(req.Target, req.For)
	case "thaw":
		return c.thaw(req.Target)
	}
	return c.lab.Trouble().carryOut(req)
}

// strikeNow has the loop deal a death or a freeze now.
func (c *control) strikeNow(e Event) error {
	if err := c.lab.sc.checkDeath(e); err != nil {
		return err
	}
	dealt := make(chan string, 1)
	c.lab.postEvent(event{call: func() {
		c.lab.strikeVictim(e)
		dealt <- c.lab.kills[len(c.lab.kills)-1].Error
	}})
	select {
	case problem := <-dealt:
		if problem != "" {
			return errors.New(problem)
		}
		return nil
	case <-time.After(controlTimeout / 2): // the asker's own patience is not over then
		return errors.New("the lab is not playing yet")
	case <-c.lab.closing.Done():
		return errors.New("the lab is ending")
	}
}

// freezeFor stops a rank or a node, and lets it go on after so long; 0 = never.
func (c *control) freezeFor(target string, span time.Duration) error {
	if err := checkDuration(span); err != nil {
		return err
	}
	if err := c.strikeNow(Event{Freeze: target}); err != nil || span == 0 {
		return err
	}
	c.lab.runAfter(span, func() { _ = c.thaw(target) }) // gone already is as good
	return nil
}

// thaw lets a frozen rank or node go on.
func (c *control) thaw(target string) error {
	v, err := c.lab.sc.parseVictim(target)
	if err != nil {
		return fmt.Errorf("thaw is %q: %w", target, err)
	}
	return c.lab.signalTarget(v, unix.SIGCONT)
}

// injectFault adds the fault from the next iteration on, and takes it back after
// its time.
func (c *control) injectFault(req Request) error {
	if req.Event == nil {
		return errors.New("inject names no fault")
	}
	e := *req.Event
	if err := c.lab.sc.checkFault(e); err != nil {
		return err
	}
	if e.endsProcesses() {
		return errors.New("inject takes faults; for deaths there are kill and freeze")
	}
	if e.isOwnWork() {
		return errors.New("data and lengths go with a scenario's file: its trainers know of them beforehand")
	}
	c.lab.postEvent(event{call: func() {
		e := e // the loop's own: takeBack reads the other
		e.AtIteration = c.faultTurn()
		c.lab.faults.addEvent(e)
		c.applyInjected()
	}})
	if req.For > 0 {
		c.lab.runAfter(req.For, func() {
			c.lab.postEvent(event{call: func() {
				c.lab.faults.endEvent(e, c.faultTurn())
				c.applyInjected()
			}})
		})
	}
	return nil
}

// unreported reports whether a training command of the user's own has reported no
// iteration: it runs without falcon_torch, or has not begun.
func (c *control) unreported() bool {
	return c.lab.opt.Train != nil && len(c.lab.records.rows) == 0
}

// faultTurn is the iteration that a fault begins or ends with: the next one, or, where
// none is reported, a number of its own, as it holds at once. Called by the lab's loop.
func (c *control) faultTurn() int64 {
	if !c.unreported() {
		return c.lab.records.done + 1
	}
	c.turns++
	return c.turns
}

// applyInjected has a fault hold at once where no iteration is reported.
func (c *control) applyInjected() {
	if c.unreported() {
		c.lab.faults.applyBefore(c.turns)
		c.lab.updateStatus(func(s *Status) {
			s.Faults = c.lab.faults.namesInForce()
		})
	}
}

// Stopped is closed when `falcon lab stop` was called.
func (l *Lab) Stopped() <-chan struct{} { return l.control.stopped }

// onlyLab is the folder of the one lab that runs.
func onlyLab() (string, error) {
	dirs := Running()
	switch len(dirs) {
	case 0:
		return "", ErrNoLab
	case 1:
		return dirs[0], nil
	}
	return "", fmt.Errorf("%w: %s", ErrManyLabs, strings.Join(dirs, ", "))
}

// Ask sends one request to the lab of a folder; "" is the one that runs.
func Ask(dir string, req Request) (Reply, error) {
	if dir == "" {
		var err error
		if dir, err = onlyLab(); err != nil {
			return Reply{}, err
		}
	}
	conn, err := net.DialTimeout("unix", controlPath(dir), controlTimeout)
	if err != nil {
		return Reply{}, fmt.Errorf("lab: the lab does not answer: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(controlTimeout))
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return Reply{}, fmt.Errorf("lab: %w", err)
	}
	var reply Reply
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return Reply{}, fmt.Errorf("lab: the answer can't be read: %w", err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("lab: %s", reply.Error)
	}
	return reply, nil
}
