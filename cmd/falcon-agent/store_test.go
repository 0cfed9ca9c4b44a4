package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/store"
	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

const storeWait = 30 * time.Second

// The real store is reached through the stand-in by clients of both layouts; a
// fence disconnects them, and those that come after it are served.
func TestStoreThroughTheStandIn(t *testing.T) {
	for _, layout := range []storetest.Layout{storetest.Legacy, storetest.Current} {
		s, err := tcpstore.Listen("127.0.0.1:0", tcpstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := store.Open(store.Options{
			Listen:   "127.0.0.1:0",
			Upstream: s.Addr(),
		})
		if err != nil {
			t.Fatal(err)
		}
		dial := func() *storetest.Client {
			c, err := storetest.Dial(p.Addr(), layout, storeWait)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		const clients = 16
		var all sync.WaitGroup
		for i := range clients {
			c := dial()
			all.Go(func() {
				n, err := c.Add("count", 1)
				if err == nil && n == clients {
					err = c.Set("go", strings.Repeat("now", 1000))
				}
				if err == nil {
					err = c.Wait(storeWait, "go")
				}
				v, err2 := c.Get("go", storeWait)
				if err != nil || err2 != nil || len(v) != 3000 {
					t.Errorf("client %d: %v, %v, %d bytes", i, err, err2, len(v))
				}
			})
		}
		all.Wait()
		one := dial()
		if got, err := one.CompareSet("lead", "", "a"); err != nil || string(got) != "a" {
			t.Errorf("compare and set: %q, %v", got, err)
		}
		if got, err := one.MultiGet("lead", "go"); err != nil || len(got) != 2 || string(got[0]) != "a" {
			t.Errorf("values: %d, %v", len(got), err)
		}
		if ok, err := one.Delete("lead"); !ok || err != nil {
			t.Errorf("deleted: %v, %v", ok, err)
		}
		if layout == storetest.Current {
			if err := one.Push("q", "x"); err != nil {
				t.Error(err)
			}
			if v, ok, err := one.Pop("q"); !ok || string(v) != "x" || err != nil {
				t.Errorf("popped %q, %v, %v", v, ok, err)
			}
			if n, err := one.Ping(7); n != 7 || err != nil {
				t.Errorf("ping: %d, %v", n, err)
			}
		}
		if err := s.Fence(5); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Add("count", 1); err == nil {
			t.Error("a client from before the fence is still served")
		}
		if n, err := dial().Add("count", 1); n != 1 || err != nil {
			t.Errorf("behind the fence: %d, %v", n, err)
		}
		p.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
