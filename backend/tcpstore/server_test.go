package tcpstore

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// patience is for what must come; a test that fails takes as long.
const patience = 10 * time.Second

var layouts = []storetest.Layout{storetest.Legacy, storetest.Current}

func open(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func dial(t testing.TB, s *Server, l storetest.Layout) *storetest.Client {
	t.Helper()
	c, err := storetest.Dial(s.Addr(), l, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s: %v, wants %v", what, got, wanted)
	}
}

// What both layouts have, against what PyTorch's server answers.
func TestRequests(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.String(), func(t *testing.T) {
			requests(t, dial(t, open(t, Options{}), l))
		})
	}
}

func requests(t *testing.T, c *storetest.Client) {
	must(t, c.Set("k", "v"))
	v, err := c.Get("k", patience)
	must(t, err)
	want(t, "get", string(v), "v")
	for i := int64(1); i <= 3; i++ {
		n, err := c.Add("n", -2)
		must(t, err)
		want(t, "add", n, -2*i)
	}
	v, err = c.Read("n")
	must(t, err)
	want(t, "a number is text", string(v), "-6")
	for _, s := range []struct{ key, expect, value, now string }{
		{"c", "", "1", "1"}, {"c", "2", "3", "1"}, {"c", "1", "3", "3"}, {"absent", "x", "y", "x"},
	} {
		v, err = c.CompareSet(s.key, s.expect, s.value)
		must(t, err)
		want(t, fmt.Sprintf("compare-and-set %v", s), string(v), s.now)
	}
	ok, err := c.Check("k", "n", "c")
	must(t, err)
	want(t, "check", ok, true)
	ok, err = c.Check("k", "absent")
	must(t, err)
	want(t, "check of one that is missing", ok, false)
	n, err := c.NumKeys()
	must(t, err)
	want(t, "keys", n, 3)
	ok, err = c.Delete("k")
	must(t, err)
	want(t, "delete", ok, true)
	ok, err = c.Delete("k")
	must(t, err)
	want(t, "delete again", ok, false)
	must(t, c.Append("a", "x"))
	must(t, c.Append("a", "yz"))
	must(t, c.MultiSet([]string{"m1", "m2"}, []string{"1", ""}))
	vs, err := c.MultiGet("a", "m1", "m2", "absent")
	must(t, err)
	want(t, "multi-get", string(bytes.Join(vs, []byte("|"))), "xyz|1||")
	must(t, c.Wait(patience))
}

// Keys that have a value are named, those of queues are not; a long list comes whole, and is paid for.
func TestListKeys(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	keys, err := c.ListKeys()
	must(t, err)
	want(t, "keys of an empty store", len(keys), 0)
	must(t, c.Push("queue", "v"))
	wanted := []string{"", strings.Repeat("k", MaxKey)}
	for i := range 5000 {
		wanted = append(wanted, fmt.Sprintf("key %d", i))
	}
	must(t, c.MultiSet(wanted, make([]string, len(wanted))))
	keys, err = c.ListKeys()
	must(t, err)
	slices.Sort(keys)
	slices.Sort(wanted)
	want(t, "all keys", slices.Equal(keys, wanted), true)
	used := s.Stats().Used
	_, err = c.ListKeys()
	must(t, err)
	_, err = c.NumKeys()
	must(t, err)
	want(t, "charged once the list is out", s.Stats().Used, used)

	full := open(t, Options{Budget: 128 << 10})
	d := dial(t, full, storetest.Current)
	must(t, d.Set(strings.Repeat("k", 60<<10), ""))
	if _, err := d.ListKeys(); err == nil {
		t.Error("a list came that the budget has no room for")
	}
}

func TestQueues(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	d := dial(t, s, storetest.Current)
	nonce, err := c.Ping(0xdeadbeef)
	must(t, err)
	want(t, "ping", nonce, 0xdeadbeef)
	for _, v := range []string{"a", "", "c"} {
		must(t, c.Push("q", v))
	}
	n, err := c.QueueLen("q")
	must(t, err)
	want(t, "length", n, 3)
	for _, w := range []string{"a", "", "c"} {
		must(t, d.Wait(patience, "q"))
		v, ok, err := d.Pop("q")
		must(t, err)
		want(t, "pop", string(v)+fmt.Sprint(ok), w+"true")
	}
	_, ok, err := d.Pop("q")
	must(t, err)
	want(t, "an empty queue", ok, false)
	want(t, "bytes left", s.Stats().Bytes, 0)
}

// A value far over the read buffer and the copy limit goes both ways.
func TestLargeValue(t *testing.T) {
	for _, l := range layouts {
		c := dial(t, open(t, Options{}), l)
		big := strings.Repeat("falcon-", MaxValue/7)
		must(t, c.Set("big", big))
		v, err := c.Read("big")
		must(t, err)
		want(t, "the same", string(v) == big, true)
	}
}

// waiting blocks until the server lists n waits.
func waiting(t testing.TB, s *Server, n int) {
	t.Helper()
	for end := time.Now().Add(patience); s.Stats().Waits != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d keys are waited for, wants %d", s.Stats().Waits, n)
		}
	}
}

// Whoever stores the last key releases all; every way of storing does.
func TestWaitersAreReleased(t *testing.T) {
	store := map[string]func(c *storetest.Client) error{
		"set": func(c *storetest.Client) error { return c.Set("go", "1") },
		"add": func(c *storetest.Client) error {
			_, err := c.Add("go", 1)
			return err
		},
		"append": func(c *storetest.Client) error { return c.Append("go", "1") },
		"cas": func(c *storetest.Client) error {
			_, err := c.CompareSet("go", "", "1")
			return err
		},
		"multi": func(c *storetest.Client) error {
			return c.MultiSet([]string{"x", "go"}, []string{"", ""})
		},
	}
	for name, put := range store {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			var wg sync.WaitGroup
			errs := make([]error, 50)
			for i := range errs {
				c := dial(t, s, layouts[i%2])
				wg.Add(1)
				go func() {
					defer wg.Done()
					errs[i] = c.Wait(patience, "go", "also", "go")
				}()
			}
			waiting(t, s, 2*len(errs))
			c := dial(t, s, storetest.Current)
			must(t, c.Set("also", ""))
			waiting(t, s, len(errs))
			must(t, put(c))
			wg.Wait()
			must(t, errors.Join(errs...))
			want(t, "waits left", s.Stats().Waits, 0)
		})
	}
}

// A queue's entry releases one of those who wait for it.
func TestQueueReleasesOne(t *testing.T) {
	s := open(t, Options{})
	got := make(chan error, 2)
	for range 2 {
		c := dial(t, s, storetest.Current)
		go func() { got <- c.Wait(0, "q") }()
	}
	waiting(t, s, 2)
	c := dial(t, s, storetest.Current)
	must(t, c.Push("q", "1"))
	must(t, <-got)
	waiting(t, s, 1)
	must(t, c.Push("q", "2"))
	must(t, <-got)
}

// A wait that was given up leaves nothing behind, and the connection goes on.
func TestWaitIsCancelled(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	for range 3 {
		if err := c.Wait(time.Millisecond, "never"); !errors.Is(err, storetest.ErrTimeout) {
			t.Fatalf("%v, wants %v", err, storetest.ErrTimeout)
		}
	}
	want(t, "waits left", s.Stats().Waits, 0)
	must(t, c.Set("never", "now"))
	must(t, c.Wait(patience, "never"))
}

// PyTorch 1.13 gives up without a word and asks the next thing.
func TestLegacyWaitIsForgotten(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Legacy)
	if err := c.Wait(time.Millisecond, "never"); !errors.Is(err, storetest.ErrTimeout) {
		t.Fatalf("%v, wants %v", err, storetest.ErrTimeout)
	}
	must(t, c.Set("k", "v"))
	v, err := c.Get("k", patience)
	must(t, err)
	want(t, "get", string(v), "v")
	want(t, "waits left", s.Stats().Waits, 0)
}

// Cancellations that cross the release never mix up the answers.
func TestCancelCrossesRelease(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	d := dial(t, s, storetest.Current)
	for i := range 300 {
		key := fmt.Sprint("k", i)
		done := make(chan error, 1)
		go func() { done <- d.Set(key, "") }()
		if err := c.Wait(time.Duration(i%20)*10*time.Microsecond+1, key); err != nil &&
			!errors.Is(err, storetest.ErrTimeout) {
			t.Fatal(err)
		}
		must(t, <-done)
		n, err := c.Ping(uint32(i))
		must(t, err)
		want(t, "the answer to the next request", n, uint32(i))
	}
}

func TestWaiterThatLeaves(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	done := make(chan error, 1)
	go func() { done <- c.Wait(0, "never") }()
	waiting(t, s, 1)
	c.Close()
	if err := <-done; err == nil {
		t.Fatal("a closed client was released")
	}
	waiting(t, s, 0)
}

// After Fence nothing of an older generation takes effect.
func TestFence(t *testing.T) {
	s := open(t, Options{Generation: 3})
	old := dial(t, s, storetest.Legacy)
	blocked := dial(t, s, storetest.Current)
	must(t, old.Set("k", "old"))
	_, err := old.Add("n", 1)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- blocked.Wait(0, "never") }()
	waiting(t, s, 1)
	must(t, s.Fence(4))
	if err := <-done; err == nil || errors.Is(err, storetest.ErrTimeout) {
		t.Fatalf("a blocked client of the old generation got %v", err)
	}
	if _, err := old.Add("n", 1); err == nil {
		t.Fatal("a client of the old generation was answered")
	}
	c := dial(t, s, storetest.Current)
	n, err := c.NumKeys()
	must(t, err)
	want(t, "keys", n, 0)
	must(t, s.Fence(4))
	if err := s.Fence(3); !errors.Is(err, ErrFenced) {
		t.Fatalf("an older generation: %v, wants %v", err, ErrFenced)
	}
	n, err = c.NumKeys()
	must(t, err)
	want(t, "the present generation stays", n, 0)
}

// A job that is over leaves no key behind: the next one's processes would take them for their own.
func TestKeysAreDroppedSomeTimeAfterTheLastClient(t *testing.T) {
	s := open(t, Options{Linger: time.Hour})
	a := dial(t, s, storetest.Current)
	b := dial(t, s, storetest.Current)
	must(t, a.Set("address of 0", "10.0.0.1:1"))
	must(t, b.Set("address of 1", "10.0.0.2:1"))
	until(t, s, "both keys are there", func(s *Server) bool {
		return s.t.size() == 2
	})
	must(t, a.Close())
	n, err := b.NumKeys()
	must(t, err)
	want(t, "keys while a client is left", n, 2)
	dial(t, s, storetest.Current) // it has made no request: somebody who looks whether the port is open
	must(t, b.Close())
	deserted := func(s *Server) bool { return !s.deserted.IsZero() }
	until(t, s, "the last client is gone", deserted)
	c := dial(t, s, storetest.Current)
	n, err = c.NumKeys()
	must(t, err)
	want(t, "keys of a job whose clients come one after another", n, 2)
	must(t, c.Close())
	until(t, s, "that one is gone too", deserted)
	s.expire(time.Now())
	want(t, "keys before it is time", s.Stats().Keys, 2)

	// Long after: found by the sweep, or by the next job's first request.
	past := func() {
		s.mu.Lock()
		s.deserted = s.deserted.Add(-time.Hour)
		s.mu.Unlock()
	}
	past()
	d := dial(t, s, storetest.Current)
	must(t, d.Set("address of 0", "10.0.0.9:1"))
	must(t, dial(t, s, storetest.Current).Close())
	n, err = d.NumKeys()
	must(t, err)
	want(t, "keys of the next job", n, 1)
	must(t, d.Close())
	until(t, s, "the next job is gone", deserted)
	past()
	s.expire(time.Now())
	want(t, "keys after the sweep", s.Stats().Keys, 0)
	want(t, "refused", s.Stats().Refused, 0)
}

// Clients that come one at a time are no job: what one leaves is there for the next, longer than a
// job's keys are.
func TestKeysOfOneClientAtATimeStayLonger(t *testing.T) {
	s := open(t, Options{Linger: time.Minute, LingerAlone: time.Hour})
	deserted := func(s *Server) bool { return !s.deserted.IsZero() }
	since := func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.deserted
	}
	a := dial(t, s, storetest.Current)
	must(t, a.Set("left", "v"))
	_, err := a.NumKeys()
	must(t, err)
	must(t, a.Close())
	until(t, s, "the first client is gone", deserted)
	s.expire(since().Add(59 * time.Minute))
	want(t, "keys before it is time", s.Stats().Keys, 1)
	b := dial(t, s, storetest.Current)
	v, err := b.Read("left")
	must(t, err)
	want(t, "what the first client left", string(v), "v")
	c := dial(t, s, storetest.Current)
	must(t, c.Set("address of 1", "10.0.0.2:1"))
	_, err = c.NumKeys()
	must(t, err)
	must(t, b.Close())
	must(t, c.Close())
	until(t, s, "both are gone", deserted)
	s.expire(since().Add(time.Minute))
	want(t, "keys of a job that has met", s.Stats().Keys, 0)
}

// A process of an old attempt that connects again is known by its keys.
func TestOldAttemptIsRefused(t *testing.T) {
	s := open(t, Options{Generation: 2})
	for key, ok := range map[string]bool{
		"//worker/attempt_1/default_pg/0": false,
		"//worker/attempt_2/x":            true,
		"/init/":                          true,
		"//worker/attempt_9/x":            true,
		"//worker/attempt_x/y":            true,
		"/worker/attempt_1":               false,
	} {
		c := dial(t, s, storetest.Current)
		_, err := c.Add(key, 1)
		want(t, key, err == nil, ok)
		c = dial(t, s, storetest.Current)
		_, err = c.Check("k", key)
		want(t, "check "+key, err == nil, ok)
	}
}

// A client that breaks a bound loses its connection; the others don't notice.
func TestBounds(t *testing.T) {
	s := open(t, Options{MaxKeys: 3, Budget: 256 << 10, MaxWaits: 4})
	good := dial(t, s, storetest.Current)
	must(t, good.MultiSet(
		[]string{"a", "b", "c"},
		[]string{"1", "x", strings.Repeat("y", 500)},
	))
	_, err := good.NumKeys() // what was stored is there once this is answered
	must(t, err)
	for name, bad := range map[string]func(c *storetest.Client) error{
		"a key too many":   func(c *storetest.Client) error { return c.Set("d", "") },
		"a queue too many": func(c *storetest.Client) error { return c.Push("d", "") },
		"too many bytes": func(c *storetest.Client) error {
			return c.Set("a", strings.Repeat("z", 200<<10))
		},
		"append too much": func(c *storetest.Client) error {
			return c.Append("c", strings.Repeat("z", 200<<10))
		},
		"no number": func(c *storetest.Client) error {
			_, err := c.Add("b", 1)
			return err
		},
		"number overflows": func(c *storetest.Client) error {
			_, err := c.Add("a", 1<<63-1)
			return err
		},
		"long key": func(c *storetest.Client) error {
			return c.Set(strings.Repeat("k", MaxKey+1), "")
		},
		"long value": func(c *storetest.Client) error {
			return c.Set("a", strings.Repeat("k", MaxValue+1))
		},
		"too many waits": func(c *storetest.Client) error {
			return c.Wait(0, "1", "2", "3", "4", "5")
		},
		"a watch": func(c *storetest.Client) error { return c.AskWatch("a") },
		"more than it reads": func(c *storetest.Client) error {
			return c.MultiSet(make([]string, MaxPerCall+1), make([]string, MaxPerCall+1))
		},
	} {
		c := dial(t, s, storetest.Legacy)
		err := bad(c)
		if err == nil {
			_, err = c.NumKeys()
		}
		if err == nil {
			t.Errorf("%s: the connection lives", name)
		}
	}
	want(t, "waits left", s.Stats().Waits, 0)
	v, err := good.Read("b")
	must(t, err)
	want(t, "the others", string(v), "x")
	want(t, "bytes", s.Stats().Bytes, int64(3+1+1+500))
}

func TestConnectionBound(t *testing.T) {
	s := open(t, Options{MaxConns: 2})
	a := dial(t, s, storetest.Current)
	b := dial(t, s, storetest.Current)
	_, err := a.NumKeys()
	must(t, err)
	_, err = b.NumKeys()
	must(t, err)
	c := dial(t, s, storetest.Current)
	if _, err := c.NumKeys(); err == nil {
		t.Fatal("a third connection was served")
	}
	want(t, "refused", s.Stats().Refused, 1)
	a.Close()
	for end := time.Now().Add(patience); s.Stats().Conns > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a closed connection is still counted")
		}
	}
	_, err = dial(t, s, storetest.Current).NumKeys()
	must(t, err)
}

// A released client that reads nothing does not hold up whoever stores.
func TestReaderThatNeverReads(t *testing.T) {
	s := open(t, Options{})
	c := dial(t, s, storetest.Current)
	must(t, c.Set("big", strings.Repeat("x", MaxValue)))
	lazy := dial(t, s, storetest.Current)
	for range 4 {
		must(t, lazy.AskGet("big"))
	}
	must(t, lazy.AskWait("go"))
	must(t, c.Set("go", ""))
	ok, err := c.Check("go")
	must(t, err)
	want(t, "the store goes on", ok, true)
}

// Close ends blocked clients and leaves no goroutine: it returns only then.
func TestCloseWhileBlocked(t *testing.T) {
	s := open(t, Options{})
	done := make(chan error, 20)
	for i := range cap(done) {
		c := dial(t, s, layouts[i%2])
		go func() { done <- c.Wait(0, "never") }()
	}
	waiting(t, s, cap(done))
	must(t, s.Close())
	for range cap(done) {
		if <-done == nil {
			t.Fatal("a client was released by the end")
		}
	}
	want(t, "connections", s.Stats().Conns, 0)
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Fatal("it listens after its end")
	}
}

func TestLoopbackOnly(t *testing.T) {
	for address, ok := range map[string]bool{
		"0.0.0.0:0":   false,
		":0":          false,
		"localhost:0": true,
		"127.0.0.1:0": true,
		"nonsense":    false,
	} {
		s, err := Listen(address, Options{})
		if want(t, address, err == nil, ok); ok {
			must(t, s.Close())
		}
	}
	s, err := Listen("0.0.0.0:0", Options{Exposed: true})
	must(t, err)
	must(t, s.Close())
}
