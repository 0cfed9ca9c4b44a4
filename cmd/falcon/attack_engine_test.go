package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/failslow/falcon/agent/ship"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// Means of the attacked engine.
const (
	victimMemory      = 512      // MiB that it may take at most
	victimMemoryLimit = "400MiB" // memory_limit
	victimDescriptors = 4096
	victimEnv         = "FALCON_ATTACKED_DIR"
)

// TestAttackedEngine is the engine's process, not a test: it is this program,
// started again by newVictim, and ends when its standard input does.
func TestAttackedEngine(t *testing.T) {
	dir := os.Getenv(victimEnv)
	if dir == "" {
		t.Skip("it is run by TestAttacks")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{
		Cur: victimDescriptors,
		Max: victimDescriptors,
	}); err != nil {
		t.Fatal(err)
	}
	cfg := engineConfig{
		StateDir:    dir,
		Listen:      "127.0.0.1:0",
		MemoryLimit: victimMemoryLimit,
	}
	cfg.fillDefaults()
	h, err := startEngine(context.Background(), cfg, loggerTo(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening on", h.Address)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// victim is an engine in a process of its own with little memory.
type victim struct {
	t       *testing.T
	dir     string
	ca      *auth.CA
	cmd     *exec.Cmd
	address string
	ended   chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Write takes the engine's log.
func (v *victim) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	const most = 1 << 20
	if v.log.Len() < most {
		v.log.Write(b)
	}
	return len(b), nil
}

func (v *victim) said() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.String()
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t: t, dir: shortDir(t), ended: make(chan struct{})}
	certs := filepath.Join(v.dir, certsName)
	err := certsInit(certs, nil, time.Now())
	if err == nil {
		v.ca, err = auth.OpenCA(certs)
	}
	if err != nil {
		t.Fatal(err)
	}
	v.cmd = exec.Command(os.Args[0], "-test.run=^TestAttackedEngine$", "-test.timeout=1h")
	v.cmd.Env = append(os.Environ(), victimEnv+"="+v.dir, "GOMEMLIMIT=")
	v.cmd.Stderr = v
	in, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	go func() {
		defer close(v.ended)
		_, _ = io.Copy(io.Discard, out)
		_ = v.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-v.ended
	})
	if v.address = address; !ok {
		t.Fatalf("the engine did not start: %v, %s%s", err, first, v.said())
	}
	return v
}

func (v *victim) alive() bool {
	select {
	case <-v.ended:
		return false
	default:
		return true
	}
}

// memory is a line of the engine's status, in MiB.
func (v *victim) memory(line string) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), line)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fields[0])
	return kib >> 10
}

// files are a caller's certificate, made when it is not there.
func (v *victim) files(role auth.Role, name string) auth.Files {
	v.t.Helper()
	f := auth.FilesIn(filepath.Join(v.dir, certsName), name)
	if _, err := os.Stat(f.Cert); err == nil {
		return f
	}
	cert, key, err := v.ca.Issue(auth.Request{Role: role, Name: name, Life: 24 * time.Hour}, time.Now())
	if err = errors.Join(
		err,
		os.WriteFile(f.Key, key, 0o600),
		os.WriteFile(f.Cert, cert, 0o600),
	); err != nil {
		v.t.Fatal(err)
	}
	return f
}

func (v *victim) dial(role auth.Role, name string) *grpc.ClientConn {
	v.t.Helper()
	conf, err := auth.ClientTLS(v.files(role, name))
	if err != nil {
		v.t.Fatal(err)
	}
	conn, err := grpc.NewClient(
		v.address,
		grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)),
	)
	if err != nil {
		v.t.Fatal(err)
	}
	return conn
}

func (v *victim) console(role auth.Role, name string) falconv1.ConsoleClient {
	conn := v.dial(role, name)
	v.t.Cleanup(func() { _ = conn.Close() })
	return falconv1.NewConsoleClient(conn)
}

// encoded is a message that is sent again and again without being encoded
// again, so that the attacker's work leaves the machine to the engine.
type encoded struct{ b []byte }

// encodedCodec sends encoded messages.
type encodedCodec struct{ encoding.CodecV2 }

func (c encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e.b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// answers are how long the owner waited.
type answers struct {
	ms     []float64
	failed error
}

func (a answers) at(share float64) float64 {
	if len(a.ms) == 0 {
		return -1
	}
	slices.Sort(a.ms)
	return a.ms[min(int(share*float64(len(a.ms))), len(a.ms)-1)]
}

// watchOwner asks again and again on the owner's socket, each time on a new
// connection, until the function that it returns is called.
func (v *victim) watchOwner() func() answers {
	stop := make(chan struct{})
	done := make(chan answers, 1)
	go func() {
		var got answers
		for {
			from := time.Now()
			if err := v.askOwner(); err != nil {
				got.failed = err
			} else {
				got.ms = append(got.ms, float64(time.Since(from).Microseconds())/1e3)
			}
			select {
			case <-stop:
				done <- got
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() answers {
		close(stop)
		return <-done
	}
}

func (v *victim) askOwner() error {
	conn, err := grpc.NewClient(
		"unix://"+filepath.Join(v.dir, socketName),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = falconv1.NewConsoleClient(conn).Snapshot(ctx, &falconv1.SnapshotRequest{
		Rank: -1,
		Own:  true,
	})
	return err
}

// crowd are honest agents, each with one rank of the job.
type crowd struct {
	v      *victim
	agents []*ship.Shipper
	stop   chan struct{}
	done   sync.WaitGroup
}

func (v *victim) fleet(n int) *crowd {
	v.t.Helper()
	f := &crowd{v: v, stop: make(chan struct{})}
	for i := range n {
		name := fmt.Sprint("n", i)
		c := v.files(auth.RoleAgent, name)
		s, err := ship.Open(ship.Config{
			Address:  v.address,
			CertFile: c.Cert,
			KeyFile:  c.Key,
			CAFile:   c.CA,
			Hello: &falconv1.Hello{
				Agent:    name,
				Node:     name,
				Boot:     "1",
				Emulated: true,
			},
		})
		if err != nil {
			v.t.Fatal(err)
		}
		f.agents = append(f.agents, s)
		s.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
			Rank:         int32(i),
			World:        int32(n),
			Pid:          7,
			Alive:        true,
			Device:       name + ".g0",
			Dp:           int32(n),
			Tp:           1,
			Pp:           1,
			MicroBatches: 4,
		}}})
	}
	v.t.Cleanup(f.end)
	f.wait("attached", func(s ship.Stats) bool {
		return s.Connected && s.Frames == 0
	})
	f.done.Go(f.train)
	return f
}

// train has each agent send an iteration a second and a sign of life every other
// one, spread over the second.
func (f *crowd) train() {
	const parts = 20
	tick := time.NewTicker(time.Second / parts)
	defer tick.Stop()
	for turn := int64(0); ; turn++ {
		i := turn / parts
		for r := int(turn % parts); r < len(f.agents); r += parts {
			s := f.agents[r]
			s.Send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Samples{
					Samples: &falconv1.Samples{
						Samples: []*falconv1.Sample{{
							Rank:      int32(r),
							Iteration: i,
							Ms:        1000,
						}},
					},
				},
			})
			if i%2 == 0 {
				s.Beat(
					time.Now(),
					[]*falconv1.RankBeat{{
						Rank:      int32(r),
						Pid:       7,
						Iteration: i,
						StepTag:   i,
					}},
					nil,
				)
			}
		}
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
	}
}

func (f *crowd) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.done.Wait()
	var closing sync.WaitGroup
	for _, s := range f.agents {
		closing.Go(s.Close)
	}
	closing.Wait()
}

// settle stops training and waits until all that was sent is acknowledged.
func (f *crowd) settle() {
	f.v.t.Helper()
	close(f.stop)
	f.done.Wait()
	f.wait("acknowledged", func(s ship.Stats) bool { return s.Frames == 0 })
	for i, s := range f.agents {
		if st := s.Stats(); st.Lost > 0 || st.Dropped > 0 {
			f.v.t.Errorf("agent %d let go of %d frames and %d samples", i, st.Lost, st.Dropped)
		}
	}
}

func (f *crowd) wait(what string, is func(ship.Stats) bool) {
	f.v.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n := 0
		for _, s := range f.agents {
			if is(s.Stats()) {
				n++
			}
		}
		if n == len(f.agents) {
			return
		}
		if time.Now().After(deadline) || !f.v.alive() {
			f.v.t.Fatalf("%d of %d agents are %s; the engine lives: %v, and says %s",
				n, len(f.agents), what, f.v.alive(), f.v.said())
		}
	}
}
