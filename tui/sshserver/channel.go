package sshserver

import (
	"context"
	"strings"
	"sync"
	"time"

	"charm.land/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// Bounds of what a client may send before its session runs.
const (
	commandMax  = 1 << 10 // bytes of a command
	envMax      = 16      // variables
	envBytesMax = 256     // of one
	termMax     = 64      // bytes of TERM
	startWait   = 30 * time.Second
)

// known are the variables that say what a terminal shows; no other is taken.
var known = map[string]bool{
	"COLORTERM":    true,
	"NO_COLOR":     true,
	"TERM_PROGRAM": true,
	"LANG":         true,
	"LC_ALL":       true,
	"LC_CTYPE":     true,
	"TZ":           true,
}

// handleSession serves one session channel. The library would agree to agent
// forwarding and to any number of variables, and waits for ever for a command:
// what is not needed is refused before it sees it.
func (s *Server) handleSession(
	srv *ssh.Server,
	conn *gossh.ServerConn,
	nc gossh.NewChannel,
	ctx ssh.Context,
) {
	name := conn.Permissions.Extensions[extName]
	if !s.seats.acquire(conn, name) {
		_ = nc.Reject(gossh.ResourceShortage, "too many sessions; leave another one first")
		return
	}
	defer s.seats.release(conn, name)
	own, gone := context.WithCancel(ctx)
	c := &channel{Context: ctx, own: own}
	ssh.DefaultSessionHandler(srv, conn, guarded{nc, c}, c)
	gone()
	c.running.Wait() // a seat is free when its program has ended
}

// channel is the context of one session: it ends with the session's channel,
// as the connection may live on without it.
type channel struct {
	ssh.Context                 // the connection's
	own         context.Context // the channel's
	running     sync.WaitGroup  // its handler, from when it is asked for
}

func (c *channel) Done() <-chan struct{} { return c.own.Done() }
func (c *channel) Err() error            { return c.own.Err() }

// guarded is a channel that passes on only the requests that are needed.
type guarded struct {
	gossh.NewChannel
	session *channel
}

func (g guarded) Accept() (gossh.Channel, <-chan *gossh.Request, error) {
	ch, in, err := g.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}
	out := make(chan *gossh.Request)
	go g.siftTyped(ch, in, out) // ends with the channel
	return ch, out, nil
}

// siftTyped refuses requests until the channel closes. What changes the window
// before there is a program would wait for one; it is dropped.
func (g guarded) siftTyped(ch gossh.Channel, in <-chan *gossh.Request, out chan<- *gossh.Request) {
	defer close(out)
	late := time.AfterFunc(startWait, func() { _ = ch.Close() })
	defer late.Stop()
	started, vars := false, 0
	for r := range in {
		ok := false
		switch r.Type {
		case "shell", "exec":
			ok = !started && len(r.Payload) <= commandMax+4
			if ok {
				started = true
				g.session.running.Add(1)
			}
		case "pty-req":
			ok = !started && isPlainTerm(r.Payload)
		case "env":
			vars++
			ok = vars <= envMax && len(r.Payload) <= envBytesMax && knownVariable(r.Payload)
		case "window-change":
			ok = started
		}
		if !ok {
			_ = r.Reply(false, nil)
			continue
		}
		if started {
			late.Stop()
		}
		out <- r
	}
}

// isPlainTerm reports whether TERM is a plain name: it ends up in files' names.
func isPlainTerm(payload []byte) bool {
	var p struct {
		Term string
		Rest []byte `ssh:"rest"`
	}
	if gossh.Unmarshal(payload, &p) != nil || len(p.Term) > termMax {
		return false
	}
	return strings.IndexFunc(p.Term, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z' ||
			r >= '0' && r <= '9' ||
			strings.ContainsRune("-_.+", r))
	}) < 0 && !strings.HasPrefix(p.Term, ".")
}

func knownVariable(payload []byte) bool {
	var kv struct{ Key, Value string }
	return gossh.Unmarshal(payload, &kv) == nil &&
		known[kv.Key] &&
		!strings.ContainsAny(kv.Value, "\x00\n\x1b")
}
