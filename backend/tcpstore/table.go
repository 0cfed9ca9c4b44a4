package tcpstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Errors of requests that are understood and not done.
var (
	ErrFull   = errors.New("tcpstore: full")
	ErrNumber = errors.New("tcpstore: value is no number")
	ErrFenced = errors.New("tcpstore: fenced")
)

// waiter is one blocked WAIT. Its connection has at most one at a time.
type waiter struct {
	c    *conn
	keys []string       // it is listed under; a key may be there twice
	left int            // of them that are not there yet; 0 = released
	told sync.WaitGroup // the answer of a released one is on its way until it is done
}

// table is what the store holds. The server's lock guards it.
type table struct {
	generation uint64
	values     map[string][]byte // a value is never changed in place: readers send it without the lock
	queues     map[string][][]byte
	waits      map[string]map[*waiter]struct{}
	bytes      int64 // of keys and values, queues included
	waiting    int   // entries of waits
}

func (t *table) clear() {
	t.values, t.queues, t.waits = map[string][]byte{}, map[string][][]byte{}, map[string]map[*waiter]struct{}{}
	t.bytes, t.waiting = 0, 0
}

// put stores a value and returns the waiters that it releases.
func (t *table) put(o *Options, key string, value []byte) ([]*waiter, error) {
	old, there := t.values[key]
	grow := int64(len(value) - len(old))
	if !there {
		grow += int64(len(key))
		if err := t.roomForKey(o); err != nil {
			return nil, err
		}
	}
	if err := t.roomFor(o, grow); err != nil {
		return nil, err
	}
	t.values[key] = value
	t.bytes += grow
	return t.wakeAll(key), nil
}

func (t *table) roomForKey(o *Options) error {
	if n := len(t.values) + len(t.queues); n >= o.MaxKeys {
		return fmt.Errorf("%w: %d keys are all that it holds", ErrFull, n)
	}
	return nil
}

func (t *table) roomFor(o *Options, grow int64) error {
	if grow > 0 && t.bytes+grow > o.MaxBytes {
		return fmt.Errorf("%w: %d bytes are all that it holds", ErrFull, o.MaxBytes)
	}
	return nil
}

func (t *table) wakeAll(key string) (free []*waiter) {
	set := t.waits[key]
	t.waiting -= len(set)
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
	w.told.Add(1)
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
	if len(set) == 0 {
		delete(t.waits, key)
	}
}

// forget drops a waiter that nobody has released.
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
	for _, k := range keys {
		if !t.has(k) {
			return false
		}
	}
	return true
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
		if t.waiting >= o.MaxWaits {
			t.forget(w)
			return nil, fmt.Errorf("%w: %d waits for a key are all that it holds", ErrFull, t.waiting)
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
func (t *table) compareSet(o *Options, key string, expect, value []byte) ([]byte, []*waiter, error) {
	old, there := t.values[key]
	if !there && len(expect) > 0 {
		return expect, nil, nil
	}
	if there && string(old) != string(expect) {
		return old, nil, nil
	}
	free, err := t.put(o, key, value)
	return value, free, err
}

// add keeps numbers as decimal text, as PyTorch's does; a missing key is 0.
func (t *table) add(o *Options, key string, delta int64) (int64, []*waiter, error) {
	var n int64
	if old, there := t.values[key]; there {
		var err error
		if n, err = strconv.ParseInt(string(old), 10, 64); err != nil {
			return 0, nil, fmt.Errorf("%w: it has %d bytes", ErrNumber, len(old))
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
	t.bytes -= int64(len(key) + len(old))
	delete(t.values, key)
	return 1
}

func (t *table) append(o *Options, key string, more []byte) ([]*waiter, error) {
	old := t.values[key]
	if len(old)+len(more) > MaxValue {
		return nil, fmt.Errorf("%w: the value would have %d bytes, %d at most", ErrFull, len(old)+len(more), MaxValue)
	}
	return t.put(o, key, append(old[:len(old):len(old)], more...))
}

func (t *table) push(o *Options, key string, value []byte) ([]*waiter, error) {
	grow := int64(len(value) + queueEntry)
	if _, there := t.queues[key]; !there {
		grow += int64(len(key))
		if err := t.roomForKey(o); err != nil {
			return nil, err
		}
	}
	if err := t.roomFor(o, grow); err != nil {
		return nil, err
	}
	t.bytes += grow
	t.queues[key] = append(t.queues[key], value)
	return t.wakeOne(key), nil
}

// queueEntry is charged for every entry of a queue, so that empty ones are
// bounded too.
const queueEntry = 24

// pop takes the oldest entry; n is how many there were before.
func (t *table) pop(key string) (n int, value []byte) {
	q := t.queues[key]
	if n = len(q); n == 0 {
		return 0, nil
	}
	value = q[0]
	t.bytes -= int64(len(value) + queueEntry)
	if q[0] = nil; n > 1 {
		t.queues[key] = q[1:]
		return n, value
	}
	t.bytes -= int64(len(key))
	delete(t.queues, key)
	return n, value
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
