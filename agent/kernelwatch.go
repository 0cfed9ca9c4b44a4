package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/failslow/falcon/agent/kernel"
	"github.com/failslow/falcon/agent/nic"
	"github.com/failslow/falcon/agent/peek"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
)

// Bounds of what the kernel's messages make an agent send.
const (
	kernelEvery = 2 * time.Second  // between two looks
	kernelAgain = 30 * time.Second // before its messages are opened again
	notesMost   = 16               // sent after one look
	noteRest    = 10 * time.Second // the same of one part is sent again after this long
	notesKnown  = 256              // parts that are remembered for it
)

// kernelWatch finds in the kernel's messages what matters to training, while it is said.
type kernelWatch struct {
	path, sysfs string
	names       pciNames
	source      *kernel.Log // nil = not open
	opened      time.Time   // when that was tried
	failed      bool        // that was logged
	sent        map[noteOf]time.Time
	log         *slog.Logger
}

// noteOf is what a note is about.
type noteOf struct {
	kind kernel.Kind
	code int
	pci  string
	pid  int
}

// watchKernel sends what the kernel says until ctx ends. It is no part of the loop: a
// kernel that writes much costs this goroutine alone.
func (q *questions) watchKernel(ctx context.Context, send func(*falconv1.AgentFrame), log *slog.Logger) {
	if !q.logs.Enabled || q.logs.Kernel == "" {
		return
	}
	w := &kernelWatch{
		path:  q.logs.Kernel,
		sysfs: q.sysfs,
		names: pciNames{node: q.node},
		sent:  map[noteOf]time.Time{},
		log:   log,
	}
	defer w.closeSource()
	tick := time.NewTicker(kernelEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		if notes := w.look(clock.Now(), first); len(notes) > 0 {
			send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Kernel{Kernel: &falconv1.KernelNotes{Notes: notes}},
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads what has come since the last one; at the first what is old is left out.
func (w *kernelWatch) look(now time.Time, first bool) []*falconv1.KernelNote {
	if w.source == nil && !w.openSource(now, first) {
		return nil
	}
	var out []*falconv1.KernelNote
	_, err := w.source.Read(func(r kernel.Record) {
		f, ok := kernel.Classify(r)
		if ok && len(out) < notesMost && w.isNew(f, now) {
			out = append(out, w.note(f, now))
		}
	})
	if err != nil {
		w.closeSource()
	}
	return out
}

func (w *kernelWatch) openSource(now time.Time, first bool) bool {
	if now.Sub(w.opened) < kernelAgain {
		return false
	}
	w.opened = now
	source, err := kernel.Open(w.path, first)
	if err != nil {
		if !w.failed {
			w.log.Info("the kernel's messages are not watched", slog.Any("err", err))
		}
		w.failed = true
		return false
	}
	w.source, w.failed = source, false
	w.names.gpus = nic.GPUAddresses(w.sysfs)
	return true
}

func (w *kernelWatch) closeSource() {
	if w.source != nil {
		w.source.Close()
		w.source = nil
	}
}

// isNew reports whether the same was not sent a moment ago: a broken GPU writes many lines.
func (w *kernelWatch) isNew(f kernel.Finding, now time.Time) bool {
	of := noteOf{f.Kind, f.Code, f.PCI, f.PID}
	if last, before := w.sent[of]; before && now.Sub(last) < noteRest {
		return false
	}
	if len(w.sent) >= notesKnown {
		clear(w.sent)
	}
	w.sent[of] = now
	return true
}

func (w *kernelWatch) note(f kernel.Finding, now time.Time) *falconv1.KernelNote {
	return &falconv1.KernelNote{
		AtUnixNs: now.UnixNano(),
		Kind:     string(f.Kind),
		Code:     int32(f.Code),
		Device:   string(w.names.device(f.PCI)),
		Pid:      int32(f.PID),
		Fatal:    f.Fatal,
		Text:     f.Text,
		Advice:   f.Advice,
		Line:     peek.Clean(f.Line),
		Rank:     -1,
	}
}
