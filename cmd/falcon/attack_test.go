package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// How the attacks are played: go test ./cmd/falcon -run Attack -v -attack 1000
// -attack-for 10s, beside nothing else.
var (
	attackAgents = flag.Int("attack", 16, "emulated agents that are attached while the engine is attacked")
	attackFor    = flag.Duration("attack-for", 500*time.Millisecond, "how long each attack lasts")
)

// Under each attack the engine lives within its memory, the owner is answered,
// and nothing that an honest agent sent is lost.
func TestAttacks(t *testing.T) {
	v := newVictim(t)
	fleet := v.fleet(*attackAgents)
	for _, a := range []struct {
		name string
		play func(context.Context, *victim)
	}{
		{"nothing", func(ctx context.Context, _ *victim) { <-ctx.Done() }},
		{"viewers' requests of 16 MiB", largeRequests},
		{"an agent's frames of 100,000 communicators", largeFrames},
		{"an agent's claims of 262,144 ranks", manyRanks},
		{"6,000 connections of a stranger", strangers},
		{"fatal reports of an agent's devices", deviceReports},
		{"1,000 watches of a viewer", manyWatches},
	} {
		owner := v.watchOwner()
		before := v.journalBytes()
		ctx, cancel := context.WithTimeout(t.Context(), *attackFor)
		a.play(ctx, v)
		cancel()
		got := owner()
		t.Logf(
			"%-44s owner p50 %6.1f ms, p99 %6.1f ms, max %6.1f ms of %d; engine %d MiB (most %d); journal +%d KiB",
			a.name, got.at(0.5), got.at(0.99), got.at(1), len(got.ms), v.memory("VmRSS:"),
			v.memory("VmHWM:"), (v.journalBytes()-before)>>10,
		)
		if got.failed != nil || len(got.ms) == 0 {
			t.Errorf("%s: the owner was not answered: %v", a.name, got.failed)
		}
		if grown := v.journalBytes() - before; grown > 16<<20 {
			t.Errorf("%s: the journal grew by %d MiB", a.name, grown>>20)
		}
		if most := v.memory("VmHWM:"); most > victimMemory {
			t.Errorf("%s: the engine took %d MiB", a.name, most)
		}
		if !v.alive() {
			t.Fatalf("%s: the engine ended: %s", a.name, v.said())
		}
	}
	fleet.settle()
	if v.said() != "" && strings.Contains(v.said(), "panic") {
		t.Errorf("the engine's log: %s", v.said())
	}
}

// repeat runs n callers until the attack is over.
func repeat(ctx context.Context, n int, call func() error) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				if call() != nil {
					// a refused caller comes again, not from within a loop without end
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

func largeRequests(ctx context.Context, v *victim) {
	b, err := proto.Marshal(&falconv1.SetPolicyRequest{
		Policy: &falconv1.Policy{
			Mode:  "approve",
			Owner: strings.Repeat("x", 16<<20+600<<10),
		},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	codec := grpc.ForceCodecV2(encodedCodec{encoding.GetCodecV2("proto")})
	var callers sync.WaitGroup
	for _, who := range []auth.Role{auth.RoleViewer, auth.RoleOperator} {
		for range 12 {
			cc := v.dial(who, "eve-"+string(who))
			callers.Go(func() {
				defer cc.Close()
				repeat(ctx, 4, func() error {
					return cc.Invoke(
						ctx,
						falconv1.Console_SetPolicy_FullMethodName,
						&encoded{b},
						&falconv1.SetPolicyReply{},
						codec,
					)
				})
			})
		}
	}
	callers.Wait()
}

func largeFrames(ctx context.Context, v *victim) {
	state := &falconv1.RankState{
		Rank:  1,
		Alive: true,
		Comms: make([]*falconv1.Comm, 100_000),
	}
	for i := range state.Comms {
		state.Comms[i] = &falconv1.Comm{
			Id:   uint64(i),
			Name: "a name of some length",
			Size: 8,
		}
	}
	sent := 0
	repeat(ctx, 1, func() error {
		return v.attach(ctx, "hostile", func(send func(*falconv1.AgentFrame) error) error {
			for sent++; sent < 156; sent++ {
				state.Rank = int32(sent)
				state.Pid = int32(sent)
				if err := send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Rank{Rank: state},
				}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		})
	})
}

func manyRanks(ctx context.Context, v *victim) {
	rank := int32(0)
	repeat(ctx, 1, func() error {
		return v.attach(ctx, "hostile", func(send func(*falconv1.AgentFrame) error) error {
			for ; ctx.Err() == nil; rank++ {
				state := &falconv1.RankState{
					Rank:  rank % (1 << 18),
					World: 1 << 18,
					Pid:   1 + rank,
					Alive: true,
					Comms: []*falconv1.Comm{{
						Id:   uint64(rank),
						Name: strings.Repeat("n", 200),
					}},
				}
				if err := send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Rank{Rank: state},
				}); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func deviceReports(ctx context.Context, v *victim) {
	code := int32(0)
	repeat(ctx, 1, func() error {
		return v.attach(ctx, "hostile", func(send func(*falconv1.AgentFrame) error) error {
			for ; ctx.Err() == nil; code++ {
				event := &falconv1.DeviceEvent{
					Device: "hostile.g0",
					Fatal:  true,
					Code:   code,
					Text:   strings.Repeat("x", 600),
				}
				if err := send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Device{Device: event},
				}); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func strangers(ctx context.Context, v *victim) {
	const most = 6000
	repeat(ctx, 8, func() error {
		var open []net.Conn
		defer func() {
			for _, c := range open {
				_ = c.Close()
			}
		}()
		for len(open) < most/8 && ctx.Err() == nil {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(
				ctx,
				"tcp",
				v.address,
			)
			if err != nil {
				return err
			}
			open = append(open, c)
		}
		select { // held for as long as a patient stranger would
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		return nil
	})
}

func manyWatches(ctx context.Context, v *victim) {
	other, err := v.console(
		auth.RoleViewer,
		"dana",
	).Watch(v.t.Context(), &falconv1.WatchRequest{AfterSeq: 1 << 40})
	if err == nil {
		_, err = other.Recv()
	}
	if err != nil {
		v.t.Errorf("another viewer's watch: %v", err)
		return
	}
	clients := make([]falconv1.ConsoleClient, 16)
	for i := range clients {
		clients[i] = v.console(auth.RoleViewer, "eve")
	}
	for i := range 1000 {
		if st, err := clients[i%len(clients)].Watch(ctx, &falconv1.WatchRequest{}); err == nil {
			go func() { _, _ = io.Copy(io.Discard, watchReader{st}) }()
		}
	}
	<-ctx.Done()
	over := make(chan error, 1)
	go func() {
		_, err := other.Recv()
		over <- err
	}()
	select {
	case err := <-over:
		if err != nil {
			v.t.Errorf("another viewer's watch ended: %v", err)
		}
	default: // it has nothing to say, and lives
	}
}

// watchReader reads a watch to its end.
type watchReader struct {
	st interface {
		Recv() (*falconv1.Event, error)
	}
}

func (w watchReader) Read([]byte) (int, error) {
	_, err := w.st.Recv()
	return 0, err
}

func (v *victim) journalBytes() int64 {
	info, err := os.Stat(filepath.Join(v.dir, journalName))
	if err != nil {
		v.t.Fatal(err)
	}
	return info.Size()
}

// attach opens a stream as one node and hands out its sender.
func (v *victim) attach(
	ctx context.Context,
	node string,
	use func(send func(*falconv1.AgentFrame) error) error,
) error {
	conn := v.dial(auth.RoleAgent, node)
	defer conn.Close()
	st, err := falconv1.NewFleetClient(conn).Attach(ctx)
	if err != nil {
		return err
	}
	hello := &falconv1.Hello{
		Agent: node,
		Node:  node,
		Boot:  fmt.Sprint(time.Now().UnixNano()),
	}
	if err := st.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Hello{Hello: hello}}); err != nil {
		return err
	}
	seq := uint64(0)
	return use(func(f *falconv1.AgentFrame) error {
		seq++
		f.Seq = seq
		return st.Send(f)
	})
}
