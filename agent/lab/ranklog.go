package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/failslow/falcon"
)

// Bounds of a rank's first line on the socket.
const (
	helloWithin = 10 * time.Second // for it to come
	helloBytes  = 4096
)

// rankLogs listens for the ranks that agents start: they write the lines that
// the lab's own ranks print to a socket. One goroutine per rank reads.
type rankLogs struct {
	socket
	lab *Lab
}

// hello is the first line of a rank on the socket.
type hello struct {
	Rank       *int   `json:"rank"`
	Pid        int    `json:"pid"`
	Generation uint64 `json:"generation"`
}

func listenRanks(l *Lab) (*rankLogs, error) {
	s := &rankLogs{lab: l}
	err := s.listen(l.place.rankSocket(), func(conn net.Conn) {
		s.wait.Go(func() { s.followRank(conn) })
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// followRank hands on the lines of one rank until it ends.
func (s *rankLogs) followRank(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(s.lab.closing, func() { conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(helloWithin))
	r := bufio.NewReaderSize(conn, helloBytes)
	p, err := readHello(r, s.lab.sc.Layout.Layout().World())
	if err != nil {
		return // not a rank
	}
	p.log = filepath.Join(s.lab.place.dir, "logs", fmt.Sprintf("%s.g%d.rank%d.log",
		Job, p.generation, p.rank))
	_ = conn.SetReadDeadline(time.Time{})
	s.lab.postEvent(event{proc: p, joined: true})
	kept := keepOutput(s.lab, p)
	defer kept.Close()
	readLines(io.TeeReader(r, kept), func(ln line) {
		s.lab.postEvent(event{proc: p, line: &ln})
	})
	s.lab.postEvent(event{proc: p, exited: true, unixNs: time.Now().UnixNano()})
}

func readHello(r *bufio.Reader, world int) (*rankProcess, error) {
	text, err := r.ReadSlice('\n') // at most the reader's size
	if err != nil {
		return nil, fmt.Errorf("lab: a rank's first line: %w", err)
	}
	var h hello
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("lab: a rank's first line: %w", err)
	}
	if h.Rank == nil || *h.Rank < 0 || *h.Rank >= world || h.Pid < 1 {
		return nil, fmt.Errorf("lab: no rank says of itself %q", text)
	}
	return &rankProcess{
		rank:       falcon.Rank(*h.Rank),
		device:     falcon.Device(variableOf(h.Pid, "FALCON_DEVICE")),
		launch:     h.Generation,
		generation: h.Generation,
		joining:    variableOf(h.Pid, "FALCON_JOIN") == "1",
		pid:        h.Pid,
	}, nil
}
