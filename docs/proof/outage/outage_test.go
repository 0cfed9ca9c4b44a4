package outage

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

func TestMain(m *testing.M) {
	beAStore()
	goleak.VerifyTestMain(m)
}

const patience = 5 * time.Minute

// here is a store in this process, for few ranks.
type here struct{ s *tcpstore.Server }

func (h here) Fence(generation uint64) error {
	return h.s.Fence(generation)
}

func (h here) Meet(n int) (time.Duration, error) {
	return storetest.Meet(h.s.Addr(), storetest.Current, n, patience)
}

func small(t *testing.T, devices int) *Cluster {
	t.Helper()
	s, err := tcpstore.Listen("127.0.0.1:0", tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Devices: devices,
		StepMs:  50,
		Beat:    300 * time.Millisecond,
		Model:   DefaultModel(),
		Meeting: here{s},
	}
	cfg.Machine.Beat, cfg.Machine.Grace = cfg.Beat, time.Millisecond
	cfg.Machine.HangMin = time.Second // the job is too young for its pace to be known
	if testing.Verbose() {
		cfg.Log = os.Stderr
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	c, err := New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// One node of four is lost: its ranks, and only they, are replaced on the
// spare, from replicas, and the store refuses the generation before.
func TestNodeIsLost(t *testing.T) {
	c := small(t, 32)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	o, err := c.Lose(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if o.Replaced != perNode ||
		o.Kept != 32-perNode ||
		o.Moves != perNode ||
		o.Detect <= 0 ||
		o.Wall <= 0 ||
		o.Groups <= 0 {
		t.Errorf("outcome %+v", o)
	}
	if o.Restore != c.Model.LinkLatency+10.0/25 {
		t.Errorf("restore takes %v s by the link model: every source sends one shard", o.Restore)
	}
	if o.Table == 0 || o.Parse <= 0 {
		t.Errorf("nobody read the rank table: %+v", o)
	}
	if got := c.Meeting.(here).s.Stats().Generation; got == 0 {
		t.Error("the store was not fenced")
	}
	t.Logf("%+v", o)
}
