package enginetest

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// outputs is the part of the engine that has nodes read for people.
type outputs struct {
	engine *Engine
	peeked []*falconv1.PeekRequest
}

// Peeked lists what people had read.
func (o *outputs) Peeked() []*falconv1.PeekRequest {
	o.engine.mu.Lock()
	defer o.engine.mu.Unlock()
	return append([]*falconv1.PeekRequest(nil), o.peeked...)
}

// Peek answers as the engine does.
func (o *outputs) Peek(_ context.Context, q *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	e := o.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	o.peeked = append(o.peeked, q)
	if e.refuse != "" {
		return nil, status.Error(codes.FailedPrecondition, e.refuse)
	}
	r, err := Peek(q)
	for _, p := range r.GetParts() {
		for i := range p.Lines {
			p.Lines[i] += e.hostile
		}
	}
	return r, err
}

// Peek is what the node of any rank answers. A stack is refused unless the person is sure.
func Peek(q *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	const at = 1_700_000_000_000_000_000
	out := &falconv1.PeekReply{
		Node:     "n1",
		Rank:     q.GetRank(),
		State:    "process 4107 has ended 42s ago (killed by signal 9 (SIGKILL))",
		AtUnixNs: at,
	}
	switch q.GetWhat() {
	case "log":
		var lines []string
		for i := range 40 {
			lines = append(lines, fmt.Sprintf(
				"iteration %d | loss 2.%04d | grad norm 0.41 | 812 tokens/s/GPU",
				380+i, 1300-i,
			))
		}
		lines = append(lines,
			"Traceback (most recent call last):",
			`  File "/workspace/train.py", line 412, in <module>`,
			"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9",
			"ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
		)
		out.Parts = []*falconv1.PeekPart{
			{
				Source: "stdout",
				Path:   "pipe:[4711]",
				Note:   "is not a regular file but a pipe to whoever started the process: name the file that keeps it with logs.files in the agent's configuration",
			},
			{
				Source:        "stderr",
				Path:          "/logs/gpt_x1/attempt_0/1/stderr.log",
				Lines:         lines,
				ChangedUnixNs: at,
				Bytes:         70_210,
			},
		}
	case "kernel":
		out.Rank, out.State = -1, ""
		out.Parts = []*falconv1.PeekPart{{
			Source: "kernel",
			Path:   "/dev/kmsg",
			Lines: []string{
				"22:13:20 Xid 79: the GPU has fallen off the bus. Reboot the node; replace the GPU where it comes again. rank 2",
				"          NVRM: Xid (PCI:0000:3b:00): 79, pid=4107, GPU has fallen off the bus.",
			},
		}}
	case "stack":
		if !q.GetSure() {
			return nil, status.Error(
				codes.FailedPrecondition,
				"engine: refused: node n1: rank 2 does not stand still: ask with --sure to read its stack all the same",
			)
		}
		out.State = "process 4107 runs"
		out.Parts = []*falconv1.PeekPart{{
			Source: "threads",
			Lines:  []string{"4107 python S (sleeping) in futex_do_wait"},
		}}
	}
	return out, nil
}
