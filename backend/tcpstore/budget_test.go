package tcpstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// raw connects without a word.
func raw(t *testing.T, s *Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

// until waits for what the server's goroutines do by themselves.
func until(t *testing.T, s *Server, what string, is func(*Server) bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		ok := is(s)
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s (%+v)", what, s.Stats())
		}
	}
}

func ended(t *testing.T, nc net.Conn) {
	t.Helper()
	must(t, nc.SetReadDeadline(time.Now().Add(patience)))
	_, err := nc.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is open: %v", err)
	}
}

func connected(n int) func(*Server) bool {
	return func(s *Server) bool { return len(s.conns) == n }
}

// Connections that never made a request make way, the oldest first; those that
// did stay.
func TestSilentMakeWay(t *testing.T) {
	s := open(t, Options{MaxConns: 3})
	good := dial(t, s, storetest.Current)
	must(t, good.Set("k", "v"))
	_, err := good.NumKeys()
	must(t, err)
	first := raw(t, s)
	until(t, s, "two are connected", connected(2))
	raw(t, s)
	until(t, s, "three are connected", connected(3))
	late := dial(t, s, storetest.Current)
	v, err := late.Read("k")
	must(t, err)
	want(t, "served", string(v), "v")
	ended(t, first)
	want(t, "evicted", s.Stats().Evicted, 1)
	_, err = good.NumKeys()
	must(t, err)
}

func TestOneAddressHasABound(t *testing.T) {
	s := open(t, Options{MaxPerAddress: 2})
	for range 2 {
		_, err := dial(t, s, storetest.Current).NumKeys()
		must(t, err)
	}
	if _, err := dial(t, s, storetest.Current).NumKeys(); err == nil {
		t.Fatal("a third connection of one address was served")
	}
	c := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	nc, err := c.Dial("tcp", s.Addr())
	must(t, err)
	other := storetest.NewClient(nc, storetest.Legacy)
	t.Cleanup(func() { other.Close() })
	_, err = other.NumKeys()
	must(t, err)
}

// By default the processes of this machine have no bound, and others do.
func TestAddressesOfOthersAreBounded(t *testing.T) {
	o := Options{}.withDefaults()
	here := netip.MustParseAddr("127.0.0.9")
	there := netip.MustParseAddr("10.0.0.9")
	want(t, "this machine", o.perAddress(here), 0)
	want(t, "another one", o.perAddress(there), perAddressMost)
	o.MaxPerAddress = 7
	want(t, "asked for", o.perAddress(here), 7)
}

// A connection must make a request, and a request must end; a wait may last.
func TestLateConnectionsAreEnded(t *testing.T) {
	s := open(t, Options{})
	silent := raw(t, s)
	amid := dial(t, s, storetest.Current)
	waiter := dial(t, s, storetest.Current)
	_, err := amid.NumKeys()
	must(t, err)
	_, err = amid.Conn().Write(cat([]byte{1}, le(1), []byte("k"), le(100), []byte("some")))
	must(t, err)
	got := make(chan error, 1)
	go func() { got <- waiter.Wait(0, "go") }()
	waiting(t, s, 1)
	until(t, s, "a request is incomplete", func(s *Server) bool {
		return s.doubt.amid.Len() == 1 && s.doubt.silent.Len() == 1
	})
	s.expire(time.Now().Add(oneRequestMax - time.Second))
	want(t, "in time", s.Stats().Conns, 3)
	s.expire(time.Now().Add(oneRequestMax))
	ended(t, amid.Conn())
	want(t, "those left", s.Stats().Conns, 2)
	s.expire(time.Now().Add(firstRequestMax))
	ended(t, silent)
	s.expire(time.Now().Add(time.Hour))
	must(t, dial(t, s, storetest.Current).Set("go", ""))
	must(t, <-got)
	want(t, "refused", s.Stats().Refused, 2)
}

// The sweep itself: nothing but time passes.
func TestSweep(t *testing.T) {
	s := open(t, Options{FirstRequest: 20 * time.Millisecond})
	ended(t, raw(t, s))
}

// Large values leave a share of the budget to those who meet.
func TestLargeValuesLeaveRoom(t *testing.T) {
	const mib = 1 << 20
	s := open(t, Options{Budget: 4 * mib})
	bad := dial(t, s, storetest.Current)
	must(t, bad.Set("1", strings.Repeat("x", mib)))
	_, err := bad.NumKeys()
	must(t, err)
	if err := bad.Set("2", strings.Repeat("x", 2*mib)); err == nil {
		_, err = bad.NumKeys()
		if err == nil {
			t.Fatal("it took more than large values may have")
		}
	}
	_, err = storetest.Meet(s.Addr(), storetest.Current, 64, patience)
	must(t, err)
	if u := s.Stats().Used; u > 4*mib {
		t.Errorf("%d bytes are in use", u)
	}
}

// Of requests that are not complete the oldest makes way for one that needs room.
func TestOldestIncompleteRequestMakesWay(t *testing.T) {
	const mib = 1 << 20
	s := open(t, Options{Budget: 16 * mib})
	slow := dial(t, s, storetest.Legacy)
	_, err := slow.Conn().Write(cat([]byte{0}, le(1), []byte("s"), le(6*mib), make([]byte, 5*mib)))
	must(t, err)
	until(t, s, "it is charged", func(s *Server) bool {
		return s.t.b.used > 8*mib
	})
	c := dial(t, s, storetest.Current)
	must(t, c.Set("k", strings.Repeat("x", 4*mib)))
	n, err := c.NumKeys()
	must(t, err)
	want(t, "keys", n, 1)
	ended(t, slow.Conn())
}

// A value that an answer still needs is charged, though its key is gone.
func TestUnreadAnswerIsCharged(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	lazy := dial(t, s, storetest.Current)
	must(t, c.Set("big", strings.Repeat("x", MaxValue)))
	_, err := c.NumKeys()
	must(t, err)
	held := func(n int) func(*Server) bool {
		return func(s *Server) bool {
			v := s.t.values["big"]
			return v != nil && v.readers == n
		}
	}
	must(t, lazy.AskGet("big"))
	until(t, s, "it is being read", held(1))
	_, err = c.Delete("big")
	must(t, err)
	if u := s.Stats().Used; u < MaxValue {
		t.Errorf("%d bytes are charged", u)
	}
	_, err = io.CopyN(io.Discard, lazy.Conn(), MaxValue+8)
	must(t, err)
	until(t, s, "it is given back", func(s *Server) bool {
		return s.t.b.used == 2*connCost
	})
}

// Everything that was charged is given back.
func TestAllIsGivenBack(t *testing.T) {
	s := open(t, Options{})
	for _, l := range layouts {
		c := dial(t, s, l)
		must(
			t,
			c.MultiSet(
				[]string{"a", "b"},
				[]string{strings.Repeat("x", 100<<10), strings.Repeat("y", 2000)},
			),
		)
		must(t, c.Append("a", "more"))
		_, err := c.CompareSet("b", "no", strings.Repeat("z", 50<<10))
		must(t, err)
		_, err = c.MultiGet("a", "b", "none")
		must(t, err)
		c.Close()
	}
	c := dial(t, s, storetest.Current)
	for i := range 3 {
		must(t, c.Push("q", strings.Repeat("v", 3000*i)))
	}
	_, _, err := c.Pop("q")
	must(t, err)
	if err := c.Wait(time.Millisecond, "x", "y"); !errors.Is(err, storetest.ErrTimeout) {
		t.Fatal(err)
	}
	must(t, s.Fence(1))
	until(t, s, "nothing is charged", func(s *Server) bool {
		return s.t.b.used == 0 && s.t.bytes == 0 && len(s.from) == 0
	})
}

// What the table says it uses is what a count of it comes to, whatever happens.
func TestChargesAreRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := &table{b: budget{limit: rapid.Int64Range(2000, 100000).Draw(t, "limit")}}
		tb.clear()
		o := Options{MaxKeys: 5, MaxWaits: 6}
		c := &conn{}
		var waiters []*waiter
		var read []*value
		key := func() string { return rapid.StringMatching("[a-d]{1,3}").Draw(t, "key") }
		val := func() []byte {
			return make([]byte, rapid.IntRange(0, 20000).Draw(t, "size"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"put":    func(*rapid.T) { _, _ = tb.put(&o, key(), val()) },
			"append": func(*rapid.T) { _, _ = tb.append(&o, key(), val()) },
			"add":    func(*rapid.T) { _, _, _ = tb.add(&o, key(), 7) },
			"push":   func(*rapid.T) { _, _ = tb.push(&o, key(), val()) },
			"remove": func(*rapid.T) { tb.remove(key()) },
			"cas": func(*rapid.T) {
				_, _, _ = tb.compareSet(&o, key(), nil, val())
			},
			"pop": func(*rapid.T) {
				if n, v := tb.pop(key()); n > 0 {
					v.readers++
					read = append(read, v)
				}
			},
			"get": func(*rapid.T) {
				if v := tb.values[key()]; v != nil {
					v.readers++
					read = append(read, v)
				}
			},
			"sent": func(*rapid.T) {
				if len(read) > 0 {
					tb.read(read[0])
					read = read[1:]
				}
			},
			"wait": func(*rapid.T) {
				if w, err := tb.wait(&o, c, []string{key(), key(), key()}); err == nil && w != nil {
					waiters = append(waiters, w)
				}
			},
			"forget": func(*rapid.T) {
				if len(waiters) > 0 {
					if waiters[0].left > 0 {
						tb.forget(waiters[0])
					}
					waiters = waiters[1:]
				}
			},
			"clear": func(*rapid.T) {
				tb.clear()
				waiters = nil
			},
			"": func(t *rapid.T) {
				got, counted := tb.b.used, count(tb, read)
				if got != counted || got > tb.b.limit {
					t.Fatalf("%d bytes are charged, a count says %d, the limit is %d",
						got, counted, tb.b.limit)
				}
			},
		})
	})
}

// count is the second implementation: what is there, added up.
func count(t *table, read []*value) (n int64) {
	for k, v := range t.values {
		n += int64(keyCost+len(k)) + v.cost()
	}
	for k, q := range t.queues {
		n += int64(keyCost + len(k))
		for _, v := range q {
			n += v.cost()
		}
	}
	for k, set := range t.waits {
		n += int64(len(set)) * waitPrice(k)
	}
	seen := map[*value]bool{}
	for _, v := range read {
		if v.dropped && !seen[v] {
			n += v.cost()
		}
		seen[v] = true
	}
	return n
}

// Many keys in one request are charged as they come.
func TestDecoderPays(t *testing.T) {
	for name, c := range map[string]struct {
		sent []byte
		most int
	}{
		"a small request": {cat([]byte{0}, le(1), []byte("k"), le(2), []byte("vv")), 0},
		"a value":         {cat([]byte{0}, le(1), []byte("k"), le(1<<20), make([]byte, 1<<20)), 2 << 20},
		"many empty keys": {cat([]byte{10}, le(1000), make([]byte, 8000)), 1000*itemCost + chunk},
		"a length alone":  {cat([]byte{0}, le(1), []byte("k"), le(MaxValue)), 2 * chunk},
	} {
		paid := 0
		d := newDecoder(strings.NewReader(string(c.sent)))
		d.charge = func(n int, _ bool) error {
			paid += n
			return nil
		}
		must(t, d.greet())
		_, _ = d.next()
		if paid > c.most || (c.most > 0 && paid == 0) {
			t.Errorf("%s: %d bytes were paid for, wants at most %d", name, paid, c.most)
		}
		d = newDecoder(strings.NewReader(string(c.sent)))
		d.charge = func(int, bool) error { return fmt.Errorf("%w: no room", ErrFull) }
		must(t, d.greet())
		if _, err := d.next(); c.most > 0 && !errors.Is(err, ErrFull) {
			t.Errorf("%s: without room: %v", name, err)
		}
	}
}
