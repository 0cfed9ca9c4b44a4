package lab

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// socket is a unix socket in the lab's folder, which only its user can reach. One
// goroutine accepts; closeSocket ends it and waits for it, and for what else is
// in wait.
type socket struct {
	ln   net.Listener
	wait sync.WaitGroup
}

// listen has serve called with one connection after the other.
func (s *socket) listen(path string, serve func(net.Conn)) (err error) {
	if s.ln, err = net.Listen("unix", path); err != nil {
		return fmt.Errorf("lab: can't listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		s.ln.Close()
		return fmt.Errorf("lab: %w", err)
	}
	s.wait.Go(func() {
		for {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	})
	return nil
}

func (s *socket) closeSocket() {
	_ = s.ln.Close()
	s.wait.Wait()
}
