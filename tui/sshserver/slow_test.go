package sshserver

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// lane carries bytes one way: so many a second, and with a delay. It is a deep
// buffer, as a modem is: what waits, waits.
type lane struct {
	rate  int
	delay time.Duration
	from  io.Reader
	to    io.Writer
	queue chan parcel
	stop  chan struct{}
}

type parcel struct {
	at    time.Time
	bytes []byte
}

// start pumps until from ends.
func (l *lane) start(wg *sync.WaitGroup) {
	wg.Go(func() {
		defer close(l.queue)
		free := time.Now()
		for {
			b := make([]byte, 512)
			n, err := l.from.Read(b)
			if n > 0 {
				now := time.Now()
				if free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
				select {
				case l.queue <- parcel{free.Add(l.delay), b[:n]}:
				case <-l.stop:
					return
				}
				time.Sleep(time.Until(free)) // the next is read when this has left
			}
			if err != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for p := range l.queue {
			time.Sleep(time.Until(p.at))
			if _, err := l.to.Write(p.bytes); err != nil {
				return
			}
		}
	})
}

// throughNarrow dials the server over a slow link.
func (p *place) throughNarrow(s gossh.Signer, rate int, delay time.Duration) *gossh.Client {
	p.t.Helper()
	far, err := net.Dial("tcp", p.server.Address())
	if err != nil {
		p.t.Fatal(err)
	}
	near, ours := net.Pipe()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, l := range []*lane{{from: near, to: far}, {from: far, to: near}} {
		l.rate = rate
		l.delay = delay
		l.queue = make(chan parcel, 4096)
		l.stop = stop
		l.start(&wg)
	}
	c, chans, reqs, err := gossh.NewClientConn(
		ours,
		p.server.Address(),
		clientConfig(s),
	)
	if err != nil {
		p.t.Fatal(err)
	}
	client := gossh.NewClient(c, chans, reqs)
	p.t.Cleanup(func() {
		_ = client.Close()
		close(stop)
		_ = near.Close()
		_ = far.Close()
		wg.Wait()
	})
	return client
}

// On a link of 64 kbit/s with 150 ms each way, while the job's data changes
// all the time, typed letters show. How soon is the benchmark's to say.
func TestKeysShowOnASlowLink(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed)
	stop := p.drive()
	defer stop()
	x := sit(
		t,
		p.throughNarrow(p.person("maria", "viewer"), 8000, 150*time.Millisecond),
		120,
		40,
		"",
	)
	x.shows("S2 PROPOSED")
	x.press("2")
	x.shows("RANKS")
	x.press("/")
	for i := range 4 {
		x.press("x")
		x.shows("/" + strings.Repeat("x", i+1))
	}
}

// drive changes the data at the feed's pace until stopped.
func (p *place) drive() (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				p.engine.Advance(1)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// stoppable is a connection whose owner can stop reading.
type stoppable struct {
	net.Conn
	mu sync.Mutex
}

func (s *stoppable) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.mu.Lock() // held by who stopped it
	defer s.mu.Unlock()
	return n, err
}

// A session that stops reading is closed; another one goes on meanwhile, and
// the engine is not held up.
func TestASessionThatStopsReadingIsClosed(t *testing.T) {
	p := newPlace(t, Limits{Stall: 500 * time.Millisecond})
	p.engine.AdvanceTo(enginetest.Proposed)
	raw, err := net.Dial("tcp", p.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	s := &stoppable{Conn: raw}
	c, chans, reqs, err := gossh.NewClientConn(
		s,
		"",
		clientConfig(p.person("stuck", "viewer")),
	)
	if err != nil {
		t.Fatal(err)
	}
	client := gossh.NewClient(c, chans, reqs)
	defer client.Close()
	stuck := sit(t, client, 200, 60, "")
	stuck.shows("gpt-lab")
	other := sit(t, p.dial(p.person("maria", "approver")), 80, 24, "")
	other.shows("gpt-lab")
	s.mu.Lock()
	for closed, i := false, 0; !closed; i++ {
		p.engine.Advance(1)
		other.press([]string{"2", "1"}[i%2])
		other.shows([]string{"RANKS", "EVENTS"}[i%2])
		p.server.seats.mu.Lock()
		closed = p.server.seats.taken == 1
		p.server.seats.mu.Unlock()
	}
	s.mu.Unlock()
	if code := stuck.ended(); code != -1 {
		t.Errorf("exit code %d of a connection that was cut", code)
	}
	other.press("2")
	other.shows("RANKS")
}

// report tells the middle and the 95th percentile.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	ms := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.95), "p95-ms")
	b.ReportMetric(0, "ns/op")
}

// From a key to the letter on the screen, over loopback SSH, while data comes
// at 5 Hz.
func BenchmarkKeyToScreenSSH(b *testing.B) {
	benchKeys(b, func(p *place, s gossh.Signer) *gossh.Client {
		return p.dial(s)
	})
}

// The same over 64 kbit/s with 150 ms each way.
func BenchmarkSlowLinkEcho(b *testing.B) {
	benchKeys(b, func(p *place, s gossh.Signer) *gossh.Client {
		return p.throughNarrow(s, 8000, 150*time.Millisecond)
	})
}

// wordKeys is how many keys one round has: a word is typed and taken back.
const wordKeys = 20

// echo presses the n-th key of a round and waits until it shows.
func (x *seat) echo(n int) time.Duration {
	start := time.Now()
	if n == wordKeys-1 {
		x.press("\x15")
		x.until("an empty filter", func(s string) bool {
			return !strings.Contains(s, "\n /a")
		})
		return time.Since(start)
	}
	x.press(string(rune('a' + n%2)))
	x.shows("\n /" + strings.Repeat("ab", wordKeys)[:n+1])
	return time.Since(start)
}

func benchKeys(b *testing.B, dial func(*place, gossh.Signer) *gossh.Client) {
	p := newPlace(b, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed)
	stop := p.drive()
	defer stop()
	x := sit(b, dial(p, p.person("maria", "viewer")), 120, 40, "")
	x.shows("S2 PROPOSED")
	x.press("2")
	x.shows("RANKS")
	x.press("/")
	x.shows("\n /")
	var took []time.Duration
	before := x.received()
	for b.Loop() {
		for n := range wordKeys {
			time.Sleep(37 * time.Millisecond) // no key falls on the data's beat
			took = append(took, x.echo(n))
		}
	}
	b.ReportMetric(float64(x.received()-before)/float64(len(took)), "B/key")
	report(b, took)
}
