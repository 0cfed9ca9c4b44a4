package tcpstore

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// attack is what a hostile process of this machine does to a store.
type attack struct {
	idle       int // connections that never say a word
	values     int // of MaxValue, that are stored
	unfinished int // requests of nearly MaxRequest that never end

	mu    sync.Mutex
	conns []net.Conn
}

func (a *attack) dial(t *testing.T, address string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	must(t, err)
	a.mu.Lock()
	a.conns = append(a.conns, nc)
	a.mu.Unlock()
	return nc
}

// begin carries it out; what the store refuses is no error.
func (a *attack) begin(t *testing.T, address string) {
	t.Helper()
	t.Cleanup(func() {
		for _, c := range a.conns {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	})
	for range a.idle {
		a.dial(t, address)
	}
	big := strings.Repeat("x", MaxValue-64)
	for i := range a.values {
		_, _ = a.dial(
			t,
			address,
		).Write(cat([]byte{0}, le(20), fmt.Appendf(nil, "%020d", i), le(uint64(len(big))), []byte(big)))
	}
	part := cat(
		[]byte{1},
		le(1),
		[]byte("k"),
		le(uint64(len(big))),
		[]byte(big),
		le(uint64(len(big))),
		[]byte(big[1:]),
	)
	var done sync.WaitGroup
	for range a.unfinished {
		nc := a.dial(t, address)
		done.Go(func() { _, _ = nc.Write(part) })
	}
	done.Wait()
}

func files(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return len(all)
}

// Whatever is thrown at it, the store's process stays within its budget, and
// those who only want to meet do.
func TestHonestRanksMeetUnderAttack(t *testing.T) {
	if testing.Short() {
		t.Skip("gigabytes go over loopback")
	}
	s := ours(t)
	a := attack{idle: 5000, values: 128, unfinished: 150}
	a.begin(t, s.address)
	held := files(t, s.pid)
	took, err := storetest.Meet(s.address, storetest.Current, 64, patience)
	must(t, err)
	peak := peakMiB(t, s.pid)
	t.Logf(
		"%d idle connections, %d MiB of values and %d unfinished requests of %d MiB: %d descriptors held, %.0f MiB at most; 64 ranks met in %s",
		a.idle, a.values*MaxValue>>20, a.unfinished, MaxRequest>>20, held, peak,
		took.Round(time.Millisecond),
	)
	if most := float64(DefaultBudget+Overhead) / (1 << 20); peak > most {
		t.Errorf("the store had %.0f MiB, wants at most %.0f", peak, most)
	}
}
