package tcpstore

import (
	lists "container/list"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// sendLimit is how long a client may leave an answer of large values unread.
const sendLimit = time.Minute

// maxReply bounds the answer to one request for many values.
const maxReply = 64 << 20

// Answers to a wait and to a check.
const (
	stopWaiting  byte = 0
	waitCanceled byte = 1
	isReady      byte = 0
	notReady     byte = 1
)

// conn is one client. Its goroutine is the only one that reads and, except for
// the answer to a blocked wait, the only one that writes.
type conn struct {
	s          *Server
	nc         *net.TCPConn
	from       netip.Addr
	generation uint64
	d          *decoder
	w          *waiter // of the newest blocked wait; used by its goroutine only
	out        []byte  // scratch for small answers
	listed     bool    // in amid; used by its goroutine only
	owes       bool    // its request or answer was charged; used by its goroutine only

	// Guarded by the server's lock.
	since   time.Time      // when it was made
	begun   time.Time      // when a request was seen to be incomplete
	silent  *lists.Element // it has not completed a request
	amid    *lists.Element // it is in the middle of one
	charged int64          // for its request and the answer; raised by its goroutine only
	gone    bool           // it was ended, and is charged for nothing
}

// answer is what goes back: head, then pieces, some of which are values as they
// are in the table: those that are held until they are sent.
type answer struct {
	head []byte
	more net.Buffers
	held []*value
}

func (c *conn) serve() {
	defer c.s.wg.Done()
	defer c.s.leave(c)
	d := c.d
	if err := d.greet(); err != nil {
		c.s.refuse(c, err)
		return
	}
	for {
		q, err := d.next()
		if err == nil {
			err = c.do(q)
		}
		if err != nil {
			c.s.refuse(c, err)
			return
		}
	}
}

// do carries out one request and sends its answer. A client asks one thing at a
// time, so that any request ends a wait that is still open: newer clients say
// so (CANCEL_WAIT), older ones give up silently.
func (c *conn) do(q request) error {
	a, free, err := c.apply(q)
	for _, w := range free {
		w.c.release(w)
	}
	if err == nil {
		err = c.send(a)
	}
	c.settle(a.held)
	return err
}

func (c *conn) apply(q request) (answer, []*waiter, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.s.deserted.IsZero() && !c.gone {
		c.s.dropDeserted(time.Now())
		c.s.deserted = time.Time{}
	}
	c.spoke()
	c.s.met = c.s.met || len(c.s.conns)-c.s.doubt.silent.Len() > 1
	c.listed = false
	c.endWait() // may let go of the lock: before anything is judged
	if c.gone {
		return answer{}, nil, net.ErrClosed
	}
	if err := c.allowed(q); err != nil {
		return answer{}, nil, err
	}
	return c.ask(q)
}

func (c *conn) allowed(q request) error {
	if now := c.s.t.generation; c.generation != now {
		return fmt.Errorf("%w: the connection is of generation %d, %d is in force",
			ErrFenced, c.generation, now)
	}
	if err := c.s.t.fenced(q.key); err != nil {
		return err
	}
	for _, k := range q.keys {
		if err := c.s.t.fenced(k); err != nil {
			return err
		}
	}
	return nil
}

// endWait forgets the open wait, or sees its answer out: what comes next must
// not overtake it.
func (c *conn) endWait() {
	if c.w == nil {
		return
	}
	if c.w.left > 0 {
		c.s.t.forget(c.w)
		c.w = nil
		return
	}
	c.s.mu.Unlock()
	c.w.announced.Wait()
	c.s.mu.Lock()
	c.w = nil
}

func (c *conn) ask(q request) (answer, []*waiter, error) {
	t := &c.s.t
	o := &c.s.o
	switch q.op {
	case opSet:
		free, err := t.put(o, q.key, q.value)
		return answer{}, free, err
	case opAppend:
		free, err := t.append(o, q.key, q.value)
		return answer{}, free, err
	case opMultiSet:
		return c.multiSet(q)
	case opCompareSet:
		v, free, err := t.compareSet(o, q.key, q.expect, q.value)
		return c.vector(v), free, err
	case opAdd:
		n, free, err := t.add(o, q.key, q.delta)
		return c.number(n), free, err
	case opPush:
		free, err := t.push(o, q.key, q.value)
		return answer{}, free, err
	case opWait:
		return c.wait(q)
	case opWatch:
		return answer{}, nil, fmt.Errorf("%w: callbacks on keys (WATCH_KEY) are not served", ErrProtocol)
	}
	a, err := c.read(q)
	return a, nil, err
}

// read answers what wakes no waiter.
func (c *conn) read(q request) (answer, error) {
	t := &c.s.t
	switch q.op {
	case opGet:
		return c.vector(t.values[q.key]), nil
	case opMultiGet:
		return c.multiGet(q)
	case opListKeys:
		return c.listKeys()
	case opCheck:
		if t.ready(q.keys) {
			return c.one(isReady), nil
		}
		return c.one(notReady), nil
	case opNumKeys:
		return c.number(int64(len(t.values))), nil
	case opDelete:
		return c.number(t.remove(q.key)), nil
	case opCancelWait:
		return c.one(waitCanceled), nil
	case opPing:
		c.out = binary.LittleEndian.AppendUint32(c.out[:0], q.nonce)
		return answer{head: c.out}, nil
	case opPop:
		return c.popped(t.pop(q.key)), nil
	case opLen:
		return c.number(int64(len(t.queues[q.key]))), nil
	}
	return answer{}, fmt.Errorf("%w: request %d has no answer", ErrProtocol, q.op)
}

func (c *conn) wait(q request) (answer, []*waiter, error) {
	w, err := c.s.t.wait(&c.s.o, c, q.keys)
	if err != nil {
		return answer{}, nil, err
	}
	if c.w = w; w == nil {
		return c.one(stopWaiting), nil, nil
	}
	return answer{}, nil, nil
}

func (c *conn) multiSet(q request) (answer, []*waiter, error) {
	var free []*waiter
	for i, k := range q.keys {
		f, err := c.s.t.put(&c.s.o, k, q.values[i])
		free = append(free, f...)
		if err != nil {
			return answer{}, free, err
		}
	}
	return answer{}, free, nil
}

// multiGet pays for the pieces of its answer, which may be many.
func (c *conn) multiGet(q request) (answer, error) {
	size, room := 0, 0
	for _, k := range q.keys {
		n := c.s.t.values[k].len()
		size += 8 + n
		if room += itemCost; n <= copyBelow {
			room += n
		}
		if size > maxReply {
			return answer{}, fmt.Errorf("%w: the values asked for at once have more than %d bytes",
				ErrProtocol, maxReply)
		}
	}
	if room > freeHeld {
		if err := c.pay(room, room > bigFrom); err != nil {
			return answer{}, err
		}
	}
	var a answer
	for _, k := range q.keys {
		a.add(&c.s.t, c.s.t.values[k])
	}
	return a, nil
}

// listKeys names the keys that have a value, in no order. It pays for the whole answer.
func (c *conn) listKeys() (answer, error) {
	size := 8
	for k := range c.s.t.values {
		if size += 8 + len(k); size > maxReply {
			return answer{}, fmt.Errorf("%w: all keys have more than %d bytes", ErrProtocol, maxReply)
		}
	}
	if size > freeHeld {
		if err := c.pay(size, size > bigFrom); err != nil {
			return answer{}, err
		}
	}
	head := binary.LittleEndian.AppendUint64(make([]byte, 0, size), uint64(len(c.s.t.values)))
	for k := range c.s.t.values {
		head = binary.LittleEndian.AppendUint64(head, uint64(len(k)))
		head = append(head, k...)
	}
	return answer{head: head}, nil
}

func (c *conn) one(b byte) answer {
	c.out = append(c.out[:0], b)
	return answer{head: c.out}
}

func (c *conn) number(n int64) answer {
	c.out = binary.LittleEndian.AppendUint64(c.out[:0], uint64(n))
	return answer{head: c.out}
}

func (c *conn) popped(n int, v *value) answer {
	a := answer{head: binary.LittleEndian.AppendUint64(nil, uint64(n))}
	if n > 0 {
		a.add(&c.s.t, v)
	}
	return a
}

// copyBelow is up to which size a value is copied into one write with its
// length.
const copyBelow = 1 << 10

func (c *conn) vector(v *value) answer {
	if v.len() > copyBelow {
		var a answer
		a.add(&c.s.t, v)
		return a
	}
	c.out = binary.LittleEndian.AppendUint64(c.out[:0], uint64(v.len()))
	if v != nil {
		c.out = append(c.out, v.b...)
	}
	return answer{head: c.out}
}

// add puts a value and its length behind what is there. A small one is copied,
// a large one held in the table until it is sent.
func (a *answer) add(t *table, v *value) {
	last := &a.head
	if n := len(a.more); n > 0 {
		last = &a.more[n-1]
	}
	*last = binary.LittleEndian.AppendUint64(*last, uint64(v.len()))
	switch {
	case v.len() > copyBelow:
		a.more = append(a.more, v.b, nil)
		a.held = append(a.held, v)
		v.readers++
	case v != nil:
		*last = append(*last, v.b...)
		t.free(v)
	}
}

func (c *conn) send(a answer) error {
	if len(a.head) == 0 && len(a.more) == 0 {
		return nil
	}
	if len(a.more) == 0 && len(a.head) <= chunk {
		_, err := c.nc.Write(a.head)
		return err
	}
	return c.sendLarge(append(net.Buffers{a.head}, a.more...))
}

// sendLarge keeps values alive that the table may have dropped: not for long.
func (c *conn) sendLarge(b net.Buffers) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	if _, err := b.WriteTo(c.nc); err != nil {
		return err
	}
	return c.nc.SetWriteDeadline(time.Time{})
}

// release tells a blocked client that its keys are there. Whoever stored the
// last one does it, and must not wait for this client: one that has no room
// for a byte reads nothing, and is disconnected.
func (c *conn) release(w *waiter) {
	defer w.announced.Done()
	raw, err := c.nc.SyscallConn()
	if err != nil {
		return
	}
	n := 0
	err = raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), []byte{stopWaiting})
		return true
	})
	if err != nil || n != 1 {
		c.nc.Close()
	}
}
