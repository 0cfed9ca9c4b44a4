package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// cutEvery is between two checks whether the lab has cut the connection.
const cutEvery = 20 * time.Millisecond

// labNet is the network of an emulated node: while a file asks for it, the lab has
// cut it off from the engine. The file holds "reset" or "drop", and until when.
type labNet struct{ file string }

// labDialer is the way to the engine, nil for the ordinary one.
func labDialer(emulated bool) func(context.Context, string) (net.Conn, error) {
	file := os.Getenv("FALCON_LAB_CUT")
	if !emulated || file == "" {
		return nil
	}
	return labNet{file}.dialEngine
}

// labClockSkew is by how much an emulated node's clock is ahead.
func labClockSkew(emulated bool) time.Duration {
	d, err := time.ParseDuration(os.Getenv("FALCON_LAB_SKEW"))
	if !emulated || err != nil {
		return 0
	}
	return d
}

// currentCut describes how the connection is cut now, "" where it is not.
func (n labNet) currentCut() string {
	text, err := os.ReadFile(n.file)
	var mode string
	var ns int64
	_, err2 := fmt.Sscan(string(text), &mode, &ns)
	if err != nil || err2 != nil || time.Now().UnixNano() >= ns {
		return ""
	}
	return mode
}

func (n labNet) dialEngine(ctx context.Context, addr string) (net.Conn, error) {
	for n.currentCut() == "drop" {
		select {
		case <-time.After(cutEvery):
		case <-ctx.Done():
			return nil, fmt.Errorf("lab: cut off: %w", ctx.Err())
		}
	}
	if n.currentCut() != "" {
		return nil, fmt.Errorf("lab: cut off: %w", syscall.ECONNREFUSED)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &labConn{Conn: conn, net: n, ended: make(chan struct{})}
	c.watching.Go(c.watchReset)
	return c, nil
}

// labConn is a connection that the lab may cut. What it drops comes through
// when the cut is over, as TCP sends it again.
type labConn struct {
	net.Conn
	net      labNet
	ended    chan struct{}
	once     sync.Once
	watching sync.WaitGroup
}

// watchReset resets the connection when the lab asks for it.
func (c *labConn) watchReset() {
	tick := time.NewTicker(cutEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ended:
			return
		}
		if c.net.currentCut() == "reset" {
			if tcp, ok := c.Conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = c.Conn.Close()
			return
		}
	}
}

// awaitCutEnd waits while everything is dropped.
func (c *labConn) awaitCutEnd() {
	for c.net.currentCut() == "drop" {
		select {
		case <-time.After(cutEvery):
		case <-c.ended:
			return
		}
	}
}

func (c *labConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.awaitCutEnd()
	return n, err
}

func (c *labConn) Write(b []byte) (int, error) {
	c.awaitCutEnd()
	return c.Conn.Write(b)
}

func (c *labConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	err := c.Conn.Close()
	c.watching.Wait()
	return err
}
