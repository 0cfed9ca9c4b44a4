package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/failslow/falcon/backend/tcpstore"
)

// Descriptors that a store's process inherits.
const (
	socketFD  = 3
	controlFD = 4
)

// oomScore makes the kernel end the store before the engine, where memory runs out.
const oomScore = "500"

// ErrInherited says that the process was not started by a keeper.
var ErrInherited = errors.New("keeper: no socket was inherited; --inherited is for the engine's own use")

// Serve is the whole life of a store's process: it returns when its keeper has
// closed the socket pair or is gone.
func Serve(o tcpstore.Options) error {
	socket := os.NewFile(socketFD, "socket")
	control := os.NewFile(controlFD, "control")
	if socket == nil || control == nil {
		return ErrInherited
	}
	l, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInherited, err)
	}
	t, is := l.(*net.TCPListener)
	if !is {
		return errors.Join(ErrInherited, l.Close())
	}
	pipe, err := net.FileConn(control)
	if err = errors.Join(err, socket.Close(), control.Close()); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrInherited, err), l.Close())
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0) // where it may not, both are equal
	tcpstore.LimitMemory(o.Budget)
	s := tcpstore.Serve(t, o)
	return errors.Join(obey(s, pipe), s.Close(), pipe.Close())
}

// obey carries out what the keeper asks for, until it is gone.
func obey(s *tcpstore.Server, control io.ReadWriter) error {
	if _, err := io.WriteString(control, message{word: wordReady}.String()); err != nil {
		return nil // gone already
	}
	in := bufio.NewScanner(control)
	in.Buffer(nil, lineMost)
	for in.Scan() {
		m, ok := parse(in.Text())
		if !ok || m.word != wordFence {
			return fmt.Errorf("keeper: %q is no request to a store", in.Text())
		}
		answer := message{word: wordFenced, generation: m.generation}
		if err := s.Fence(m.generation); err != nil {
			answer = message{wordRefused, m.generation, err.Error()}
		}
		if _, err := io.WriteString(control, answer.String()); err != nil {
			return nil
		}
	}
	return nil
}
