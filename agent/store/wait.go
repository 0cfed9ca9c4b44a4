package store

import (
	"errors"
	"io"
	"net"
)

var errWaits = errors.New("store: too many different keys are waited for at once on this node")

// waitForKeys has a client wait for keys: with those that wait for the same ones, or by
// a connection of their own.
func (p *Proxy) waitForKeys(c *client, q request) error {
	key := string(q.raw)
	if c.current {
		key = "current " + key
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waits[key]; w != nil {
		w.clients[c], c.w = true, w
		return nil
	}
	switch {
	case p.closed:
		return net.ErrClosed
	case len(p.waits) >= WaitsMax:
		return errWaits
	}
	w := &waitFor{
		key:     key,
		first:   c,
		clients: map[*client]bool{c: true},
		bill:    bill{b: &p.b},
	}
	if err := w.bill.chargeBytes(len(key) + cap(q.raw)); err != nil {
		return err
	}
	p.waits[key], c.w = w, w
	isCurrent := c.current
	p.done.Go(func() { p.runWait(w, q, isCurrent) })
	return nil
}

// runWait holds one wait at the store, and then answers all clients that wait.
func (p *Proxy) runWait(w *waitFor, q request, isCurrent bool) {
	err := p.askStore(w, q, isCurrent)
	defer w.bill.refundAll()
	p.mu.Lock()
	if p.waits[w.key] == w {
		delete(p.waits, w.key)
	}
	var clients []*client
	for c := range w.clients {
		clients = append(clients, c)
	}
	p.mu.Unlock()
	for _, c := range clients {
		if err != nil || p.releaseClient(c, w, q) != nil {
			_ = c.nc.Close()
		}
	}
}

// askStore sends the wait and blocks until the store answers, or no client waits any more.
func (p *Proxy) askStore(w *waitFor, q request, isCurrent bool) error {
	nc, err := p.dialStore(isCurrent)
	if err != nil {
		return err
	}
	defer nc.Close()
	p.mu.Lock()
	w.nc = nc
	gone := w.left || p.closed
	p.mu.Unlock()
	if gone {
		return net.ErrClosed
	}
	if _, err := nc.Write(q.raw); err != nil {
		return err
	}
	var b [1]byte
	if _, err := io.ReadFull(nc, b[:]); err != nil {
		return err
	}
	if b[0] != stopWaiting {
		return ErrProtocol
	}
	return nil
}

// releaseClient answers a client whose keys are there. Of one that joined the wait
// later nobody knows whether the answer was given before that: it asks once more,
// and waits on where the keys have gone meanwhile.
func (p *Proxy) releaseClient(c *client, w *waitFor, q request) error {
	if c != w.first {
		ready, err := p.keysReady(c, q)
		if err != nil {
			p.dropConnection(c.up)
			return err
		}
		if !ready {
			return p.waitAgain(c, w, q)
		}
	}
	c.mu.Lock() // what the client asks next must not overtake this answer
	defer c.mu.Unlock()
	if !p.leaveWait(c, w) {
		return nil // it has given up
	}
	return c.writeLocked([]byte{stopWaiting})
}

// keysReady asks whether the keys of a wait are there. In both layouts CHECK has the
// number before WAIT's, and the same parts.
func (p *Proxy) keysReady(c *client, q request) (bool, error) {
	raw := append([]byte{q.raw[0] - 1}, q.raw[1:]...)
	answer, err := c.up.roundTrip(request{kind: check, raw: raw, keys: q.keys}, nil)
	return err == nil && answer[0] == 0, err
}

// waitAgain repeats the wait of a client that still waits.
func (p *Proxy) waitAgain(c *client, w *waitFor, q request) error {
	if !p.leaveWait(c, w) {
		return nil
	}
	return p.waitForKeys(c, q)
}

// leaveWait takes a client out of a wait; false where it is not in it any more.
func (p *Proxy) leaveWait(c *client, w *waitFor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.w != w {
		return false
	}
	c.w = nil
	delete(w.clients, c)
	return true
}

// stopWaiting ends a client's wait, if it has one. The last one ends it at the
// store too.
func (p *Proxy) stopWaiting(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := c.w
	if w == nil {
		return
	}
	c.w = nil
	delete(w.clients, c)
	if len(w.clients) > 0 {
		return
	}
	w.left = true
	if p.waits[w.key] == w {
		delete(p.waits, w.key)
	}
	if w.nc != nil {
		_ = w.nc.Close()
	}
}
