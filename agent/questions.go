package agent

import (
	"log/slog"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/peek"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what waits for the loop: requests of people, and what was found of processes.
const (
	peeksMax = 8
	foundMax = 64 // processes looked at at once
)

// questions are what the engine wants to know, and what it takes to answer people.
type questions struct {
	asks    chan *falconv1.Ask  // holds the newest question that is not answered
	peeks   chan *falconv1.Peek // of people
	busy    chan struct{}       // holds a token while a request is read
	proc    string
	node    falcon.Node
	sysfs   string
	signs   map[int]sign // by process
	logs    LogsConfig
	said    *peek.Memory
	looking chan struct{} // holds a token while lookAt runs
	found   chan outputs  // what it has found
	reading chan struct{} // holds a token for each end whose lines are read
	words   chan lastWords
	fails   bool // what is known of outputs can't be written down, and that was logged
}

func newQuestions(cfg Config, said string) questions {
	return questions{
		asks:    make(chan *falconv1.Ask, 1),
		peeks:   make(chan *falconv1.Peek, peeksMax),
		busy:    make(chan struct{}, 1),
		looking: make(chan struct{}, 1),
		found:   make(chan outputs, foundMax),
		proc:    cfg.Host.Proc,
		node:    falcon.Node(cfg.Node),
		sysfs:   cfg.NIC.Sysfs,
		logs:    cfg.Logs,
		said:    peek.NewMemory(said),
		reading: make(chan struct{}, wordsWait),
		words:   make(chan lastWords, wordsWait),
	}
}

// Peek has something read for a person; it never blocks. What does not fit is forgotten:
// the engine says that no answer came.
func (q *questions) Peek(p *falconv1.Peek) {
	select {
	case q.peeks <- p:
	default:
	}
}

// noteOutputs remembers where the processes' outputs go, for when they have ended.
func (q *questions) noteOutputs(now time.Time, processes []*process, log *slog.Logger) {
	if !q.logs.Enabled || q.proc == "" {
		return
	}
	var living []peek.Living
	for _, p := range processes {
		living = append(living, peek.Living{
			Path:   p.path,
			MadeNs: p.header.StartMonoNs,
			PID:    p.header.PID,
			UID:    p.uid,
			Rank:   int(p.rank),
		})
	}
	q.takeFound()
	unknown := q.said.Follow(now, living)
	if len(unknown) > 0 && len(q.looking) == 0 {
		q.looking <- struct{}{}
		go q.lookAt(unknown[:min(len(unknown), cap(q.found))])
	}
	err := q.said.Save()
	if err != nil && !q.fails {
		log.Warn(
			"can't write down where the processes' outputs go: after a restart of the agent those of ended ones are not found",
			slog.Any("err", err),
		)
	}
	q.fails = err != nil
}

// outputs are where one process's outputs go.
type outputs struct {
	of      peek.Living
	streams []peek.Stream
}

// lookAt finds out where outputs go, beside the loop: a file system may not answer.
func (q *questions) lookAt(list []peek.Living) {
	for _, l := range list {
		q.found <- outputs{l, peek.Streams(q.proc, l.PID, q.logs.Files)}
	}
	<-q.looking
}

func (q *questions) takeFound() {
	for {
		select {
		case f := <-q.found:
			q.said.Found(f.of, f.streams)
		default:
			return
		}
	}
}

// answerPeek reads what a person asked for in a goroutine of its own: a file may be on a
// file system that does not answer. While one is read others are refused.
func (q *questions) answerPeek(p *falconv1.Peek, calls func() []string, send func(*falconv1.AgentFrame)) {
	answer := func(parts []*falconv1.PeekPart, refused string) {
		send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Peeked{Peeked: &falconv1.Peeked{
			Peek:    p.GetId(),
			Parts:   parts,
			Refused: refused,
		}}})
	}
	read, refused := q.reader(p, calls)
	if refused == "" {
		select {
		case q.busy <- struct{}{}:
		default:
			refused = "the agent still reads what was asked for before: ask again in a moment"
		}
	}
	if refused != "" {
		answer(nil, refused)
		return
	}
	go func() {
		defer func() { <-q.busy }()
		answer(read())
	}()
}

// peekRead reads for a person; why is set where there is nothing.
type peekRead func() (parts []*falconv1.PeekPart, why string)

// reader is what has to be read for a request, or why it is not. calls are where the node's
// ranks stand, read now.
func (q *questions) reader(p *falconv1.Peek, calls func() []string) (read peekRead, refused string) {
	if !q.logs.Enabled {
		return nil, "this node's agent reads nothing for people: logs.enabled is false in its configuration"
	}
	switch p.GetWhat() {
	case "stack":
		return q.stackReader(p)
	case "kernel":
		return q.kernelReader(int(p.GetLines()))
	case "node":
		return q.nodeReader(p, calls()), ""
	case "log":
		of := q.said.Of(int(p.GetRank()))
		if len(of) == 0 {
			return nil, "its agent has seen no process of this rank"
		}
		return func() ([]*falconv1.PeekPart, string) {
			return peek.Tails(q.proc, of, q.logs.Files, int(p.GetLines())), ""
		}, ""
	}
	return nil, "the agent does not know what is asked for: update it"
}
