package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Errors of this package.
var (
	ErrTimeout  = errors.New("storetest: keys did not come in time")
	ErrProtocol = errors.New("storetest: protocol")
)

// Client is a small client. One goroutine may use it. After an error other than ErrTimeout in the current
// layout it is of no use any more: in the legacy layout a wait that was given
// up can't be distinguished from its late answer.
type Client struct {
	nc     net.Conn
	layout Layout
	codes  [opWatch + 1]int // by op; -1 = this layout has no such request
}

// Dial connects and greets.
func Dial(address string, layout Layout, timeout time.Duration) (*Client, error) {
	nc, err := (&net.Dialer{Timeout: timeout, KeepAlive: -1}).Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	c := NewClient(nc, layout)
	if hello := c.greeting(); len(hello) > 0 {
		_, err = nc.Write(hello)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("storetest: %w", err)
	}
	return c, nil
}

// NewClient speaks over a connection that the store has been greeted on.
func NewClient(nc net.Conn, layout Layout) *Client {
	c := &Client{nc: nc, layout: layout}
	for i := range c.codes {
		c.codes[i] = -1
	}
	for o, number := range numbers[layout] {
		c.codes[o] = number
	}
	return c
}

// greeting is what a client says first; nothing in the legacy layout.
func (c *Client) greeting() []byte {
	if c.layout == Legacy {
		return nil
	}
	return binary.LittleEndian.AppendUint32([]byte{0}, magic)
}

// Conn is the connection itself, for what no client should send.
func (c *Client) Conn() net.Conn { return c.nc }

// AskGet sends a request and reads no answer.
func (c *Client) AskGet(key string) error {
	return c.call(opGet, nil, nil, key)
}

// AskWait sends a wait for keys and reads no answer.
func (c *Client) AskWait(keys ...string) error {
	return c.call(opWait, list(keys), nil)
}

// AskWatch asks for what no store of this kind has, and reads no answer.
func (c *Client) AskWatch(key string) error {
	return c.call(opWatch, nil, nil, key)
}

// Close hangs up.
func (c *Client) Close() error { return c.nc.Close() }

// Abort hangs up on the spot, whatever is on its way: nothing of the connection
// lingers.
func (c *Client) Abort() error {
	if t, is := c.nc.(*net.TCPConn); is {
		if err := t.SetLinger(0); err != nil {
			return fmt.Errorf("storetest: %w", errors.Join(err, c.nc.Close()))
		}
	}
	return c.nc.Close()
}

func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (c *Client) begin(o op) ([]byte, error) {
	if c.codes[o] < 0 {
		return nil, fmt.Errorf("%w: the %s layout has no such request", ErrProtocol, c.layout)
	}
	return []byte{byte(c.codes[o])}, nil
}

// call sends a request of texts and, where answer is not nil, reads that many
// bytes.
func (c *Client) call(o op, tail []byte, answer []byte, texts ...string) error {
	b, err := c.begin(o)
	if err != nil {
		return err
	}
	for _, s := range texts {
		b = text(b, s)
	}
	if _, err := c.nc.Write(append(b, tail...)); err != nil {
		return fmt.Errorf("storetest: %w", err)
	}
	if len(answer) == 0 {
		return nil
	}
	if _, err := io.ReadFull(c.nc, answer); err != nil {
		return fmt.Errorf("storetest: %w", err)
	}
	return nil
}

func (c *Client) number(o op, tail []byte, texts ...string) (int64, error) {
	var b [8]byte
	err := c.call(o, tail, b[:], texts...)
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

func (c *Client) vector() ([]byte, error) {
	var b [8]byte
	if _, err := io.ReadFull(c.nc, b[:]); err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > valueMost {
		return nil, fmt.Errorf("%w: an answer of %d bytes", ErrProtocol, n)
	}
	v := make([]byte, n)
	if _, err := io.ReadFull(c.nc, v); err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	return v, nil
}

// Set stores a value. Nothing comes back: a refusal shows in the next call.
func (c *Client) Set(key, value string) error {
	return c.call(opSet, nil, nil, key, value)
}

// Append adds to the end of a value.
func (c *Client) Append(key, value string) error {
	return c.call(opAppend, nil, nil, key, value)
}

// Push adds an entry to a queue.
func (c *Client) Push(key, value string) error {
	return c.call(opPush, nil, nil, key, value)
}

// Add adds to a number and returns the sum.
func (c *Client) Add(key string, delta int64) (int64, error) {
	return c.number(opAdd, binary.LittleEndian.AppendUint64(nil, uint64(delta)), key)
}

// Delete removes a key and says whether it was there.
func (c *Client) Delete(key string) (bool, error) {
	n, err := c.number(opDelete, nil, key)
	return n == 1, err
}

// NumKeys counts the keys.
func (c *Client) NumKeys() (int64, error) {
	return c.number(opNumKeys, nil)
}

// QueueLen counts the entries of a queue.
func (c *Client) QueueLen(key string) (int64, error) {
	return c.number(opLen, nil, key)
}

// Read returns a value as it is now, empty when it is not there.
func (c *Client) Read(key string) ([]byte, error) {
	if err := c.call(opGet, nil, nil, key); err != nil {
		return nil, err
	}
	return c.vector()
}

// Get waits for a key and returns its value, as PyTorch's get does.
func (c *Client) Get(key string, timeout time.Duration) ([]byte, error) {
	if err := c.Wait(timeout, key); err != nil {
		return nil, err
	}
	return c.Read(key)
}

// CompareSet stores value if the key has expect, or if it is missing and
// expect is empty; it returns what is there now, and expect when nothing is.
func (c *Client) CompareSet(key, expect, value string) ([]byte, error) {
	if err := c.call(opCompareSet, nil, nil, key, expect, value); err != nil {
		return nil, err
	}
	return c.vector()
}

// MultiGet returns the values of keys as they are now.
func (c *Client) MultiGet(keys ...string) ([][]byte, error) {
	if err := c.call(opMultiGet, list(keys), nil); err != nil {
		return nil, err
	}
	out := make([][]byte, len(keys))
	for i := range out {
		var err error
		if out[i], err = c.vector(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MultiSet stores values[i] under keys[i].
func (c *Client) MultiSet(keys, values []string) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(keys)))
	for i, k := range keys {
		b = text(text(b, k), values[i])
	}
	return c.call(opMultiSet, b, nil)
}

func list(keys []string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(keys)))
	for _, k := range keys {
		b = text(b, k)
	}
	return b
}

// ListKeys names all keys that have a value.
func (c *Client) ListKeys() ([]string, error) {
	n, err := c.number(opListKeys, nil)
	var out []string
	for ; n > 0 && err == nil; n-- {
		var k []byte
		if k, err = c.vector(); err == nil {
			out = append(out, string(k))
		}
	}
	return out, err
}

// Check reports whether all keys are there.
func (c *Client) Check(keys ...string) (bool, error) {
	var b [1]byte
	err := c.call(opCheck, list(keys), b[:])
	return b[0] == isReady, err
}

// Pop takes the oldest entry of a queue; false = it is empty.
func (c *Client) Pop(key string) ([]byte, bool, error) {
	n, err := c.number(opPop, nil, key)
	if err != nil || n == 0 {
		return nil, false, err
	}
	v, err := c.vector()
	return v, err == nil, err
}

// Ping has the server send a number back.
func (c *Client) Ping(nonce uint32) (uint32, error) {
	var b [4]byte
	err := c.call(opPing, binary.LittleEndian.AppendUint32(nil, nonce), b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// Wait blocks until all keys are there; 0 = without a limit.
func (c *Client) Wait(timeout time.Duration, keys ...string) error {
	if err := c.call(opWait, list(keys), nil); err != nil {
		return err
	}
	if timeout > 0 {
		if err := c.nc.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return fmt.Errorf("storetest: %w", err)
		}
	}
	got, err := c.stopped()
	if clear := c.nc.SetReadDeadline(time.Time{}); clear != nil && err == nil {
		err = fmt.Errorf("storetest: %w", clear)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.cancel(keys)
	}
	if err == nil && got != stopWaiting {
		err = fmt.Errorf("%w: a wait was answered with %d", ErrProtocol, got)
	}
	return err
}

func (c *Client) stopped() (byte, error) {
	var b [1]byte
	if _, err := io.ReadFull(c.nc, b[:]); err != nil {
		return 0, fmt.Errorf("storetest: %w", err)
	}
	return b[0], nil
}

// cancel takes a wait back. The answer to it may have crossed the cancellation,
// and then comes first.
func (c *Client) cancel(keys []string) error {
	if c.layout == Legacy {
		return fmt.Errorf("%w: %q", ErrTimeout, keys)
	}
	if err := c.call(opCancelWait, nil, nil); err != nil {
		return err
	}
	for {
		b, err := c.stopped()
		if err != nil {
			return err
		}
		if b == waitCanceled {
			return fmt.Errorf("%w: %q", ErrTimeout, keys)
		}
	}
}
