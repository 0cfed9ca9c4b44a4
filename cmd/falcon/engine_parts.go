package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/rpc"
	"github.com/failslow/falcon/tui/sshserver"
)

// part is something that the engine can do without. What is wrong with it is explained in the
// console and looked at again; it never keeps the engine from starting, or ends it.
type part interface {
	// problems puts right what it can, and returns what is wrong now. It is called from one
	// goroutine at a time.
	problems() []string
}

// checkParts tells what has come to be wrong with the parts, and what is right again.
func (k *care) checkParts(ctx context.Context) {
	now := map[string]bool{}
	var first string
	for _, p := range k.parts {
		for _, text := range p.problems() {
			if first == "" {
				first = text
			}
			now[text] = true
			k.tellOnce(ctx, text)
		}
	}
	for text := range k.impaired {
		if !now[text] {
			delete(k.alarmed, text)
			k.tell(ctx, 0, "it is right again: "+text)
		}
	}
	k.impaired = now
	if more := len(now) - 1; more > 0 {
		first += fmt.Sprintf(" (and %d more: falcon serve --check)", more)
	}
	err := engine.Impair(ctx, k.engine, first)
	if err != nil && ctx.Err() == nil {
		k.log.Error("can't report to the engine what does not work", slog.Any("err", err))
	}
}

func (k *care) tellOnce(ctx context.Context, text string) {
	if !k.alarmed[text] {
		k.log.Error("a part of the engine does not work", slog.String("alarm", text))
	}
	k.alarmOnce(ctx, text)
}

// sshFront is the console over SSH. It is opened again and again until it can be.
type sshFront struct {
	cfg    *sshConfig
	server *rpc.Server
	log    *slog.Logger
	book   *auth.KeyBook

	mu     sync.Mutex
	open   *sshserver.Server // nil while it can't be opened
	closed bool
}

// newSSHFront opens the SSH server; nil where none is configured.
func newSSHFront(cfg *sshConfig, server *rpc.Server, log *slog.Logger) *sshFront {
	if cfg.Listen == "" {
		return nil
	}
	f := &sshFront{
		cfg:    cfg,
		server: server,
		log:    log,
		book:   auth.OpenKeyBook(cfg.AuthorizedKeys, cfg.UserCA, nil),
	}
	_ = f.tryOpen() // the first look at the parts tells it
	return f
}

// tryOpen opens the server where it is not open.
func (f *sshFront) tryOpen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != nil || f.closed {
		return nil
	}
	if err := f.cfg.validate(); err != nil {
		return err
	}
	s, err := f.cfg.listen(f.book, f.server, f.log)
	f.open = s
	return err
}

func (f *sshFront) problems() (list []string) {
	if err := f.tryOpen(); err != nil {
		list = append(list, "the console over SSH is off: "+sentence(err))
	}
	for _, err := range f.book.Problems() {
		list = append(list, "ssh: not taken: "+sentence(err))
	}
	return list
}

// address is HOST:PORT, "" while it is not open.
func (f *sshFront) address() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		return ""
	}
	return f.open.Address()
}

// closeFront ends all sessions; it is not opened again.
func (f *sshFront) closeFront() {
	f.mu.Lock()
	s := f.open
	f.closed = true
	f.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// renewal signs agents' certificates again.
type renewal struct{ caFile string }

func (r renewal) problems() []string {
	if _, err := openAuthority(r.caFile); err != nil {
		return []string{"agents' certificates are not renewed: " + sentence(err)}
	}
	return nil
}

// copying writes copies of the journal.
type copying struct {
	mu  sync.Mutex
	bad error // of the newest copy
}

func (c *copying) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad = err
}

func (c *copying) problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad == nil {
		return nil
	}
	return []string{"no copies of the journal are written: " + sentence(c.bad)}
}
