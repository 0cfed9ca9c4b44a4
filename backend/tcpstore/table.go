package tcpstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Errors of requests that are understood and not done.
var (
	ErrFull   = errors.New("tcpstore: full")
	ErrNumber = errors.New("tcpstore: value is no number")
	ErrFenced = errors.New("tcpstore: fenced")
	ErrLate   = errors.New("tcpstore: late")
)

// waiter is one blocked WAIT. Its connection has at most one at a time.
type waiter struct {
	c         *conn
	keys      []string       // it is listed under; a key may be there twice
	left      int            // of them that are not there yet; 0 = released
	announced sync.WaitGroup // the answer of a released one is on its way until it is done
}

// value is one value or entry of a queue. Its bytes are never changed: answers
// send them without the lock, and it is charged until the last one is sent.
type value struct {
	b       []byte
	readers int  // answers that hold it
	dropped bool // it is not in the table any more
}

func (v *value) len() int {
	if v == nil {
		return 0
	}
	return len(v.b)
}

func (v *value) cost() int64 {
	return int64(len(v.b) + itemCost)
}

// table is what the store holds. The server's lock guards it.
type table struct {
	b          budget
	generation uint64
	values     map[string]*value
	queues     map[string][]*value
	waits      map[string]map[*waiter]struct{}
	bytes      int64 // of keys and values, queues included
	waiting    int   // entries of waits
}

// clear drops all keys. The waits are those of clients that are disconnected.
func (t *table) clear() {
	for k, v := range t.values {
		t.leave(k)
		t.drop(v)
	}
	for k, q := range t.queues {
		t.leave(k)
		for _, v := range q {
			t.drop(v)
		}
	}
	for k, set := range t.waits {
		t.b.used -= int64(len(set)) * waitPrice(k)
	}
	t.values = map[string]*value{}
	t.queues = map[string][]*value{}
	t.waits = map[string]map[*waiter]struct{}{}
	t.bytes, t.waiting = 0, 0
}

// size is how many keys there are.
func (t *table) size() int {
	return len(t.values) + len(t.queues)
}

// enter charges a new key together with its first value.
func (t *table) enter(o *Options, key string, v *value) error {
	if n := t.size(); n >= o.MaxKeys {
		return fmt.Errorf("%w: %d keys are all that it holds", ErrFull, n)
	}
	if err := t.take(int64(keyCost+len(key)) + v.cost()); err != nil {
		return err
	}
	t.bytes += int64(len(key))
	return nil
}

// take charges n bytes to the table.
func (t *table) take(n int64) error {
	if !t.b.take(n, n > bigFrom) {
		return t.b.full()
	}
	return nil
}

// leave gives back what a key was charged.
func (t *table) leave(key string) {
	t.b.used -= int64(keyCost + len(key))
	t.bytes -= int64(len(key))
}

// drop takes a value out of the table. It is charged while answers hold it.
func (t *table) drop(v *value) {
	v.dropped = true
	t.bytes -= int64(len(v.b))
	t.free(v)
}

// read is the end of one answer that held a value.
func (t *table) read(v *value) {
	v.readers--
	t.free(v)
}

func (t *table) free(v *value) {
	if v.dropped && v.readers == 0 {
		t.b.used -= v.cost()
	}
}

// put stores a value and returns the waiters that it releases.
func (t *table) put(o *Options, key string, b []byte) ([]*waiter, error) {
	v := &value{b: b}
	old, there := t.values[key]
	if !there {
		if err := t.enter(o, key, v); err != nil {
			return nil, err
		}
	} else if err := t.take(v.cost()); err != nil {
		return nil, err
	}
	t.values[key] = v
	t.bytes += int64(len(b))
	if there {
		t.drop(old)
	}
	return t.wakeAll(key), nil
}

func (t *table) wakeAll(key string) (free []*waiter) {
	set := t.waits[key]
	t.waiting -= len(set)
	t.b.used -= int64(len(set)) * waitPrice(key)
	delete(t.waits, key)
	for w := range set {
		if w.found() {
			free = append(free, w)
		}
	}
	return free
}

// found counts one key as there, and says whether it was the last.
func (w *waiter) found() bool {
	if w.left--; w.left > 0 {
		return false
	}
	w.announced.Add(1)
	return true
}

// wakeOne releases one of those who wait for the queue: the entry is for one.
func (t *table) wakeOne(key string) []*waiter {
	for w := range t.waits[key] {
		t.unlist(w, key)
		if w.found() {
			return []*waiter{w}
		}
	}
	return nil
}

func (t *table) unlist(w *waiter, key string) {
	set := t.waits[key]
	if _, there := set[w]; !there {
		return
	}
	delete(set, w)
	t.waiting--
	t.b.used -= waitPrice(key)
	if len(set) == 0 {
		delete(t.waits, key)
	}
}

// forget drops a waiter that has not been released.
func (t *table) forget(w *waiter) {
	for _, k := range w.keys {
		t.unlist(w, k)
	}
}

func (t *table) has(key string) bool {
	if _, ok := t.values[key]; ok {
		return true
	}
	return len(t.queues[key]) > 0
}

func (t *table) ready(keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool {
		return !t.has(k)
	})
}

// waitPrice is what one client that waits for a key is charged.
func waitPrice(key string) int64 { return int64(waitCost + len(key)) }

// listed charges a wait for a key, behind so many of the same client.
func (t *table) listed(o *Options, key string, behind int) error {
	if t.waiting >= o.MaxWaits {
		return fmt.Errorf("%w: %d waits for a key are all that it holds", ErrFull, t.waiting)
	}
	if !t.b.take(waitPrice(key), behind*waitCost+len(key) > bigFrom) {
		return t.b.full()
	}
	return nil
}

// wait lists a waiter under the keys that are missing; nil = none is.
func (t *table) wait(o *Options, c *conn, keys []string) (*waiter, error) {
	w := &waiter{c: c}
	for _, k := range keys {
		if t.has(k) {
			continue
		}
		if _, there := t.waits[k][w]; there {
			continue
		}
		if err := t.listed(o, k, len(w.keys)); err != nil {
			t.forget(w)
			return nil, err
		}
		if t.waits[k] == nil {
			t.waits[k] = map[*waiter]struct{}{}
		}
		t.waits[k][w] = struct{}{}
		t.waiting++
		w.keys = append(w.keys, k)
	}
	if w.left = len(w.keys); w.left == 0 {
		return nil, nil
	}
	return w, nil
}

// compareSet follows PyTorch's: a missing key is set when nothing is expected,
// else the expectation comes back.
func (t *table) compareSet(o *Options, key string, expect, b []byte) (*value, []*waiter, error) {
	old, there := t.values[key]
	if !there && len(expect) > 0 {
		return &value{b: expect}, nil, nil
	}
	if there && string(old.b) != string(expect) {
		return old, nil, nil
	}
	free, err := t.put(o, key, b)
	return t.values[key], free, err
}

// add keeps numbers as decimal text, as PyTorch's does; a missing key is 0.
func (t *table) add(o *Options, key string, delta int64) (int64, []*waiter, error) {
	var n int64
	if old, there := t.values[key]; there {
		var err error
		if n, err = strconv.ParseInt(string(old.b), 10, 64); err != nil {
			return 0, nil, fmt.Errorf("%w: it has %d bytes", ErrNumber, len(old.b))
		}
	}
	sum := n + delta
	if (sum > n) != (delta > 0) && delta != 0 {
		return 0, nil, fmt.Errorf("%w: %d and %d overflow", ErrNumber, n, delta)
	}
	free, err := t.put(o, key, strconv.AppendInt(nil, sum, 10))
	return sum, free, err
}

func (t *table) remove(key string) int64 {
	old, there := t.values[key]
	if !there {
		return 0
	}
	t.leave(key)
	t.drop(old)
	delete(t.values, key)
	return 1
}

func (t *table) append(o *Options, key string, more []byte) ([]*waiter, error) {
	old := t.values[key]
	n := old.len() + len(more)
	if n > MaxValue {
		return nil, fmt.Errorf("%w: the value would have %d bytes, %d at most", ErrFull, n, MaxValue)
	}
	b := make([]byte, 0, n)
	if old != nil {
		b = append(b, old.b...)
	}
	return t.put(o, key, append(b, more...))
}

func (t *table) push(o *Options, key string, b []byte) ([]*waiter, error) {
	v := &value{b: b}
	if _, there := t.queues[key]; !there {
		if err := t.enter(o, key, v); err != nil {
			return nil, err
		}
	} else if err := t.take(v.cost()); err != nil {
		return nil, err
	}
	t.bytes += int64(len(b))
	t.queues[key] = append(t.queues[key], v)
	return t.wakeOne(key), nil
}

// pop takes the oldest entry, which its answer gives back; n is how many there
// were before.
func (t *table) pop(key string) (n int, v *value) {
	q := t.queues[key]
	if n = len(q); n == 0 {
		return 0, nil
	}
	v = q[0]
	v.dropped = true
	t.bytes -= int64(len(v.b))
	if q[0] = nil; n > 1 {
		t.queues[key] = q[1:]
		return n, v
	}
	t.leave(key)
	delete(t.queues, key)
	return n, v
}

// attempt is the part of a key by which torchelastic tells apart the attempts
// of a job: what it prefixes is /worker/attempt_N.
const attempt = "/worker/attempt_"

// fenced says that a key names an attempt older than the generation.
func (t *table) fenced(key string) error {
	_, rest, there := strings.Cut(key, attempt)
	if !there {
		return nil
	}
	number, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n >= t.generation {
		return nil
	}
	return fmt.Errorf("%w: a key is of attempt %d, generation %d is in force", ErrFenced, n, t.generation)
}
