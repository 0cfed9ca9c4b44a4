package nvml

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// heard keeps what a prober tells.
type heard struct {
	mu     sync.Mutex
	events []Event
}

func (h *heard) take(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *heard) all() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}

// eventful is a library whose second GPU sends these codes, a second apart.
func eventful(codes ...uint64) *mock.Interface {
	d, other := newSilicon().device(), newSilicon().device()
	lib := library([]*mock.Device{other, d})
	lib.EventSetCreateFunc = func() (gonvml.EventSet, gonvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() gonvml.Return { return gonvml.SUCCESS },
			WaitFunc: func(ms uint32) (gonvml.EventData, gonvml.Return) {
				time.Sleep(time.Duration(ms) * time.Millisecond)
				if len(codes) == 0 {
					return gonvml.EventData{}, gonvml.ERROR_TIMEOUT
				}
				x := codes[0]
				codes = codes[1:]
				return gonvml.EventData{Device: d, EventData: x}, gonvml.SUCCESS
			},
		}, gonvml.SUCCESS
	}
	return lib
}

func TestXidsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heard{}
		storm := append([]uint64{79, 31, 999}, make([]uint64, 20)...)
		for i := range 20 {
			storm[3+i] = 31 // for 20 s, from second 4 on
		}
		p := newProber(Config{Node: "n1", Now: time.Now, Event: h.take}, eventful(storm...))
		defer p.Close()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		got := h.all()
		if len(got) != 5 { // 79, 31, 999, and 31 again at seconds 12 and 22
			t.Fatalf("%d events %+v", len(got), got)
		}
		if e := got[0]; e.Device != "n1.g1" ||
			!e.Fatal ||
			e.Code != 79 ||
			e.AtNs == 0 ||
			!strings.Contains(e.Text, "bus") {
			t.Errorf("event %+v", e)
		}
		if e := got[1]; e.Fatal || e.Code != 31 {
			t.Errorf("event %+v", e)
		}
		if e := got[2]; e.Fatal || !strings.Contains(e.Text, "not known") {
			t.Errorf("event %+v", e)
		}
	})
}

func TestGrowthOfEccErrorsAndActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		h := &heard{}
		set := func(field uint32, n uint64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fields[field] = n
		}
		p := newProber(
			Config{
				Node:   "n1",
				Now:    time.Now,
				Period: time.Second,
				Event:  h.take,
			},
			library([]*mock.Device{s.device()}),
		)
		defer p.Close()
		time.Sleep(3 * time.Second)
		if got := h.all(); len(got) != 0 {
			t.Fatalf("an error from before the agent's start was reported: %+v", got)
		}
		set(gonvml.FI_DEV_ECC_DBE_VOL_TOTAL, 3)
		time.Sleep(3 * time.Second)
		set(gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION, uint64(gonvml.GPU_RECOVERY_ACTION_GPU_RESET))
		time.Sleep(3 * time.Second)
		set(gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION, uint64(gonvml.GPU_RECOVERY_ACTION_NONE))
		set(gonvml.FI_DEV_ECC_DBE_VOL_TOTAL, 0) // the driver was loaded again
		time.Sleep(3 * time.Second)
		set(gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION, uint64(gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P))
		time.Sleep(3 * time.Second)
		got := h.all()
		if len(got) != 3 ||
			!got[0].Fatal ||
			!strings.Contains(got[0].Text, "2 more uncorrectable") ||
			!got[1].Fatal ||
			!strings.Contains(got[1].Text, "reset") ||
			got[2].Fatal {
			t.Fatalf("events %+v", got)
		}
		for _, r := range p.Latest(time.Now()) {
			if strings.Contains(r.Err, "action") {
				t.Errorf("reading %+v", r)
			}
		}
	})
}
