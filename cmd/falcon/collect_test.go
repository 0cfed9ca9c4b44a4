package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// jobConsole answers as the engine of a job whose rank 2 is slow and whose node n3 is away.
type jobConsole struct {
	fakeConsole
	order sync.Mutex
	asked []string
	busy  int // questions that are refused as too many
}

func (j *jobConsole) Snapshot(context.Context, *falconv1.SnapshotRequest) (*falconv1.SnapshotReply, error) {
	s := &falconv1.SnapshotReply{
		Job:      &falconv1.Job{Name: "../../etc/x"},
		AtUnixNs: time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC).UnixNano(),
		EngineId: "e",
	}
	for r, node := range []string{"n0", "n1", "n2", "n3"} {
		v := &falconv1.RankView{
			Rank:       int32(r),
			Device:     node + ".g0",
			SelfMs:     15,
			SmClockMhz: 1410,
			Health:     falconv1.RankHealth_RANK_HEALTH_OK,
		}
		if r == 2 {
			v.SelfMs = 30
			v.Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
		}
		s.Ranks = append(s.Ranks, v)
		s.Nodes = append(s.Nodes, &falconv1.NodeView{Node: node, Connected: r != 3})
	}
	s.Series = &falconv1.Series{FirstIteration: 1}
	for range 60 {
		s.Series.Ms = append(s.Series.Ms, 140)
	}
	return s, nil
}

func (j *jobConsole) Incidents(
	context.Context,
	*falconv1.IncidentsRequest,
) (*falconv1.IncidentsReply, error) {
	return &falconv1.IncidentsReply{}, nil
}

func (j *jobConsole) Peek(_ context.Context, q *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	j.order.Lock()
	defer j.order.Unlock()
	if j.busy > 0 {
		j.busy--
		return nil, status.Error(codes.ResourceExhausted, "engine: busy: wait 2s")
	}
	j.asked = append(j.asked, q.GetNode())
	if q.GetNode() == "n3" {
		return nil, status.Error(codes.FailedPrecondition, "engine: refused: the agent of n3 is away")
	}
	return &falconv1.PeekReply{
		Node: q.GetNode(),
		Parts: []*falconv1.PeekPart{
			{
				Source: "calls",
				Lines: []string{
					"rank 0 process 7 communicator 01: collective 9, 0 inside, 0.1 s since its newest call",
				},
			},
			{
				Source: "kernel",
				Path:   "/dev/kmsg",
				Lines: []string{
					"2026-04-02 01:00:00Z  Xid 79 on n0.g0",
					"    NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.",
					"2026-05-01 02:59:00Z  link",
					"    mlx5_core 0000:9c:00.0 mlx5_4: Port: 1 Link DOWN",
				},
			},
			{Source: "../../stdout", Owner: 1, Lines: []string{"hello"}},
		},
	}, nil
}

func TestCollectIsReadByDetect(t *testing.T) {
	f := &jobConsole{busy: 1}
	f.serveAs(t, f)
	dir := t.TempDir()
	out := filepath.Join(dir, "job.tar.gz")
	code, said, errs := command(t, "collect", "--out", out)
	if code != 0 || !strings.Contains(said, "missing  node n3: the agent of n3 is away") {
		t.Fatalf("%d %q %q", code, said, errs)
	}
	if !slices.Equal(f.asked, []string{"n2", "n0", "n1", "n3"}) {
		t.Errorf("asked %v: the blamed node comes first", f.asked)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	code, said, errs = command(t, "detect", out)
	if code != exitSlow ||
		!strings.Contains(said, "rank 2: self_ms is 30, 2.00 times") ||
		strings.Contains(said, "fallen off the bus") {
		t.Errorf("%d %s %s", code, said, errs)
	}
	if strings.Contains(said, "..") {
		t.Errorf("a name of the engine's leads out of the archive:\n%s", said)
	}
	code, _, errs = command(t, "collect", "--out", out)
	if code != 2 || !strings.Contains(errs, "is not written over") {
		t.Errorf("%d %q", code, errs)
	}
}

// Nothing is left of an archive that could not be made.
func TestCollectLeavesNoHalfArchive(t *testing.T) {
	t.Setenv("FALCON_SOCKET", filepath.Join(shortDir(t), "none.sock"))
	dir := t.TempDir()
	code, _, errs := command(t, "collect", "--out", filepath.Join(dir, "a.tar.gz"))
	if code != 1 || !strings.Contains(errs, "no engine") {
		t.Errorf("%d %q", code, errs)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
