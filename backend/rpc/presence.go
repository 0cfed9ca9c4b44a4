package rpc

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// Bounds of presence.
const (
	presenceLife     = 5 * time.Second // a screen that has not pulled for so long has gone
	operatorsMost    = 64              // screens that are known at once
	operatorsEach    = 8               // of one name, so that no one name fills the table
	presenceTextMost = 64              // bytes of an id that a client chooses
)

// presence knows who looks now, so that operators see each other before they
// decide. It is a courtesy and no lock: the first decision wins whoever looks.
// Name, role and origin are what the transport proved; a client chooses only
// its session and what it attends to, and can't speak for another's.
type presence struct {
	now func() time.Time

	mu    sync.Mutex
	seats map[seat]*sight
}

// seat is one screen of one proven caller.
type seat struct {
	who     auth.Identity
	session string
}

// sight is when a screen was last seen, and with what.
type sight struct {
	attending string
	since     time.Time
	last      time.Time
}

func newPresence(now func() time.Time) *presence {
	if now == nil {
		now = time.Now
	}
	return &presence{now: now, seats: map[seat]*sight{}}
}

// noteSeen notes a pull; one without a session is of a program, not of a screen.
func (p *presence) noteSeen(who auth.Identity, session, attending string) {
	session = presenceText(session)
	attending = presenceText(attending)
	if session == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	at := seat{who, session}
	s := p.seats[at]
	switch {
	case s == nil:
		p.forget(now)
		if len(p.seats) >= operatorsMost || p.sessionsOf(who.Name) >= operatorsEach {
			return
		}
		p.seats[at] = &sight{attending, now, now}
	case s.attending != attending || now.Sub(s.last) > presenceLife:
		*s = sight{attending, now, now}
	default:
		s.last = now
	}
}

// forget drops who has gone; the caller holds mu.
func (p *presence) forget(now time.Time) {
	for at, s := range p.seats {
		if now.Sub(s.last) > presenceLife {
			delete(p.seats, at)
		}
	}
}

func (p *presence) sessionsOf(name string) int {
	n := 0
	for at := range p.seats {
		if at.who.Name == name {
			n++
		}
	}
	return n
}

// operators lists who looks now, longest first.
func (p *presence) operators() []*falconv1.Operator {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(p.now())
	var out []*falconv1.Operator
	for at, s := range p.seats {
		out = append(out, &falconv1.Operator{
			Name:        at.who.Name,
			Role:        string(at.who.Role),
			From:        at.who.From,
			Session:     at.session,
			Attending:   s.attending,
			SinceUnixNs: s.since.UnixNano(),
		})
	}
	slices.SortFunc(out, func(a, b *falconv1.Operator) int {
		return cmp.Or(
			cmp.Compare(a.SinceUnixNs, b.SinceUnixNs),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Session, b.Session),
			cmp.Compare(a.From, b.From),
		)
	})
	return out
}

// presenceText is an id that others' terminals may show.
func presenceText(s string) string {
	if len(s) > presenceTextMost {
		s = s[:presenceTextMost]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, s)
}
