package agent

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon/agent/peek"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what a node gives for an autopsy.
const (
	collectParts = 36      // the node's own and two of each of 16 ranks
	collectBytes = 1 << 20 // of all lines: the newest of each source are kept
	rasWithin    = 2 * time.Second
	rasBytes     = 256 << 10
)

// rasAddress is where NCCL's RAS listens by default (NCCL_RAS_ADDR).
const rasAddress = "localhost:28028"

// nodeReader reads all of a node that an autopsy needs: where its ranks stand in their calls, what its kernel
// has said, what NCCL's RAS says, and the last lines of each rank. A source that can't be read says why.
func (q *questions) nodeReader(p *falconv1.Peek, calls []string) peekRead {
	lines := int(p.GetLines())
	kernelRead, kernelWhy := q.kernelReader(lines)
	ranks := map[int][]peek.Known{}
	for _, rank := range q.said.Ranks() {
		ranks[rank] = q.said.Of(rank)
	}
	return func() ([]*falconv1.PeekPart, string) {
		parts := []*falconv1.PeekPart{{
			Source: "calls",
			Lines:  calls[:min(len(calls), peek.LinesMost)],
		}}
		parts = append(parts, orWhy("kernel", kernelRead, kernelWhy)...)
		parts = append(parts, rasPart(rasAddress))
		for _, rank := range slices.Sorted(maps.Keys(ranks)) {
			for _, part := range peek.Tails(q.proc, ranks[rank], q.logs.Files, lines) {
				part.Owner = int32(rank) + 1
				parts = append(parts, part)
			}
		}
		return within(parts), ""
	}
}

// orWhy is what a reader reads, or a part that says why there is nothing.
func orWhy(source string, read peekRead, why string) []*falconv1.PeekPart {
	if why == "" {
		parts, refused := read()
		if refused == "" {
			return parts
		}
		why = refused
	}
	return []*falconv1.PeekPart{{Source: source, Note: why}}
}

// rasPart asks NCCL's RAS on this node for its status, as its own client does. It answers from a
// thread of its own in one of the job's processes, and waits for peers itself: what has not come
// within rasWithin is left.
func rasPart(address string) *falconv1.PeekPart {
	part := &falconv1.PeekPart{Source: "ras", Path: address}
	conn, err := net.DialTimeout("tcp", address, rasWithin)
	if err != nil {
		part.Note = "no process of this node listens: NCCL before 2.24, NCCL_RAS_ENABLE=0, or another NCCL_RAS_ADDR"
		return part
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(rasWithin)); err != nil {
		part.Note = "its connection takes no deadline"
		return part
	}
	if _, err := io.WriteString(conn, "verbose status\n"); err != nil {
		part.Note = "it did not take the question"
		return part
	}
	text, err := io.ReadAll(io.LimitReader(conn, rasBytes))
	for l := range strings.SplitSeq(strings.TrimRight(string(text), "\n"), "\n") {
		if len(part.Lines) < peek.LinesMost {
			part.Lines = append(part.Lines, peek.Clean(l))
		}
	}
	if err != nil {
		part.Note = fmt.Sprintf("it had not answered whole after %s", rasWithin)
	}
	return part
}

// within keeps an answer below its bounds: of sources that have most the oldest lines go first.
func within(parts []*falconv1.PeekPart) []*falconv1.PeekPart {
	parts = parts[:min(len(parts), collectParts)]
	total := 0
	for _, p := range parts {
		total += sizeOf(p.Lines)
	}
	for total > collectBytes {
		most := slices.MaxFunc(parts, func(a, b *falconv1.PeekPart) int {
			return sizeOf(a.Lines) - sizeOf(b.Lines)
		})
		half := len(most.Lines) / 2
		total -= sizeOf(most.Lines[:half+1])
		most.Lines = most.Lines[half+1:]
		most.Note = "only its newest lines: the node's answer has a bound"
	}
	return parts
}

func sizeOf(lines []string) int {
	n := 0
	for _, l := range lines {
		n += len(l) + 1
	}
	return n
}

// callLines say where the node's ranks stand in their calls, one line for each communicator.
func (s processSet) callLines(proc string, mono int64) []string {
	var out []string
	for _, p := range s.withRanks(nil) {
		c := p.rankCalls(proc, mono, 1)
		for _, comm := range c.GetComms() {
			if !comm.GetKnown() {
				continue
			}
			out = append(out, fmt.Sprintf(
				"rank %d process %d communicator %016x: collective %d, %d inside, %.1f s since its newest call",
				c.GetRank(), c.GetPid(), comm.GetComm(), comm.GetCollectives(), comm.GetInside(),
				c.GetIdleMs()/1e3,
			))
		}
	}
	return out
}
