package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab/swarm"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

type swarmOptions struct {
	nodes, gpus int
	period      time.Duration
	lasts       time.Duration
	connect     time.Duration
	slowRank    int
	factor      float64
	slowFrom    int64
	profile     string
	storm       string
	asJSON      bool
}

func labSwarmCommand() *cobra.Command {
	o := swarmOptions{}
	c := &cobra.Command{
		Use:   "swarm",
		Short: "Measure what an engine costs at scale: emulated nodes with real streams against a falcon serve of its own",
		Long: `Measure what an engine costs at scale.

Each of --nodes emulated nodes has its own certificate and mTLS stream by the agents' own code, and
sends samples, telemetry, beats and profiles of --gpus ranks at an agent's rates. The engine is
falcon serve in a process of its own, with its journal on disk and detection on; the last line is
what it cost. With --storm, the engine is then killed and started again (restart), all agents are
cut off for 5 s (loss), or every tenth one begins a new stream each second for 20 s (flap).
Emulated: nodes, GPUs, ports, the job.`,
		Example: "  falcon lab swarm --nodes 1250\n  falcon lab swarm --nodes 125 --slow-rank 77 --slow-factor 1.3 --slow-from 30",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.nodes < 1 ||
				o.gpus < 1 ||
				o.gpus > 64 ||
				o.period < 10*time.Millisecond ||
				o.lasts < 5*time.Second {
				return fmt.Errorf(
					"%w: --nodes and --gpus (at most 64) are at least 1, --period at least 10ms, --for at least 5s",
					errUsage,
				)
			}
			if o.slowRank >= o.nodes*o.gpus || o.slowRank >= 0 && !(o.factor > 1) {
				return fmt.Errorf("%w: --slow-rank is below %d, and --slow-factor above 1",
					errUsage, o.nodes*o.gpus)
			}
			if !slices.Contains([]string{"", stormRestart, stormLoss, stormFlap}, o.storm) {
				return fmt.Errorf("%w: --storm is %s, %s or %s", errUsage, stormRestart, stormLoss, stormFlap)
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runSwarm(ctx, c.OutOrStdout(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.nodes, "nodes", 125, "emulated nodes")
	f.IntVar(&o.gpus, "gpus", 8, "GPUs of a node, each with a rank and a port")
	f.DurationVar(&o.period, "period", time.Second, "of a healthy iteration")
	f.DurationVar(&o.lasts, "for", time.Minute, "how long is measured, once all nodes are connected")
	f.DurationVar(&o.connect, "connect-within", 3*time.Minute, "how long all nodes may take to connect")
	f.IntVar(&o.slowRank, "slow-rank", -1, "a rank whose computation is slow (-1 = none)")
	f.Float64Var(&o.factor, "slow-factor", 1.3, "how much longer it computes")
	f.Int64Var(&o.slowFrom, "slow-from", 30, "iteration from which it does")
	f.StringVar(
		&o.profile,
		"profile",
		"",
		"write the profile of the engine's CPU time to this file, and that of its heap to the same with .heap (go tool pprof)",
	)
	f.StringVar(&o.storm, "storm", "",
		"what happens to agents during the measurement: restart, loss or flap")
	f.BoolVar(&o.asJSON, "json", false, "write the result as one JSON document")
	return c
}

// swarmResult is what the engine cost.
type swarmResult struct {
	Nodes       int        `json:"nodes"`
	Ranks       int        `json:"ranks"`
	Connected   int        `json:"connected"`
	ConnectS    float64    `json:"connect_s"`
	Seconds     float64    `json:"seconds"` // measured
	EngineCores float64    `json:"engine_cores"`
	SwarmCores  float64    `json:"swarm_cores"`
	RSSMB       float64    `json:"rss_mb"`
	PeakMB      float64    `json:"peak_mb"`
	SamplesPerS float64    `json:"samples_per_s"`       // sent
	TakenPerS   float64    `json:"samples_taken_per_s"` // by the engine's own iteration
	Dropped     int64      `json:"dropped_frames"`
	PullMs      [2]float64 `json:"pull_p50_p95_ms"`
	// of a request that waits for the loop's turn: the loop's delay, and a small answer
	TurnMs          [2]float64 `json:"turn_p50_p99_ms"`
	JournalKBPerMin float64    `json:"journal_kb_per_min"`
	Profiles        int64      `json:"profile_frames"`
	ProfileMB       float64    `json:"profile_mb"`
	// commands that would have stopped or changed a healthy job
	Harm      map[string]int64 `json:"harm"`
	Incidents []string         `json:"incidents,omitempty"`
	Storm     *stormResult     `json:"storm,omitempty"`
}

func runSwarm(ctx context.Context, w io.Writer, o swarmOptions) error {
	dir, err := os.MkdirTemp("", "falcon-swarm-")
	if err != nil {
		return fmt.Errorf("can't make a folder for the swarm: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := issueSwarmCerts(filepath.Join(dir, "certs"), o.nodes); err != nil {
		return err
	}
	e, err := startSwarmEngine(ctx, dir, o.profile)
	if err != nil {
		return err
	}
	defer e.stop()
	cfg := swarm.Config{
		Engine: e.listen,
		Certs:  filepath.Join(dir, "certs"),
		Job:    "swarm",
		Nodes:  o.nodes,
		GPUs:   o.gpus,
		Period: o.period,
	}
	if o.slowRank >= 0 {
		cfg.Fault = swarm.Fault{
			Rank:   falcon.Rank(o.slowRank),
			Factor: o.factor,
			From:   o.slowFrom,
		}
	}
	begun := time.Now()
	s, err := swarm.Start(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	for s.Connected() < o.nodes &&
		time.Since(begun) < o.connect &&
		ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	r := swarmResult{
		Nodes:     o.nodes,
		Ranks:     s.World(),
		Connected: s.Connected(),
		ConnectS:  time.Since(begun).Seconds(),
	}
	if r.Connected < o.nodes {
		fmt.Fprintf(w, "only %d of %d nodes are connected after %s\n", r.Connected, o.nodes, o.connect)
	}
	s.Train()
	if err := measureSwarm(ctx, w, o, s, e, &r); err != nil {
		return err
	}
	if o.storm != "" {
		if err := runStorm(ctx, o.storm, s, e, &r); err != nil {
			return err
		}
	}
	if o.asJSON {
		return writeJSON(w, r)
	}
	return writeString(w, r.String())
}

// String is the result in one line, and what was found in others.
func (r swarmResult) String() string {
	var b strings.Builder
	for _, i := range r.Incidents {
		fmt.Fprintf(&b, "incident: %s\n", i)
	}
	for kind, n := range r.Harm {
		fmt.Fprintf(&b, "HARM: %d commands %s to a job that nothing ails\n", n, kind)
	}
	if r.Storm != nil {
		b.WriteString(r.Storm.String())
	}
	fmt.Fprintf(&b,
		"profiles: %d frames, %.1f MB; journal %.0f kB a minute; connected in %.1f s; %d frames dropped\n",
		r.Profiles, r.ProfileMB, r.JournalKBPerMin, r.ConnectS, r.Dropped)
	fmt.Fprintf(&b,
		"%d nodes, %d ranks: engine %.2f cores (swarm %.2f), RSS %.0f MB (peak %.0f), %.0f of %.0f samples/s, pull p50 %.1f p95 %.1f ms, loop's turn p50 %.1f p99 %.1f ms\n",
		r.Nodes, r.Ranks, r.EngineCores, r.SwarmCores, r.RSSMB, r.PeakMB, r.TakenPerS,
		r.SamplesPerS, r.PullMs[0], r.PullMs[1], r.TurnMs[0], r.TurnMs[1])
	return b.String()
}

// settleFirst is left out of what is measured: the job is described and learnt in it.
const settleFirst = 10 * time.Second

// turnEvery is how often the loop's turn is asked for.
const turnEvery = 50 * time.Millisecond

// swarmProbe asks the engine as consoles do, and keeps how long the answers take, in ms.
type swarmProbe struct {
	cl             falconv1.ConsoleClient
	known, columns uint64 // versions of the picture that it holds
	job            *falconv1.Job
	pulls          []float64 // of pictures
	turns          []float64 // of requests with a small answer, which wait for the loop's turn
}

func (p *swarmProbe) pull(ctx context.Context) {
	began := time.Now()
	q, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got, err := p.cl.Snapshot(q, &falconv1.SnapshotRequest{
		Rank:           -1,
		Packed:         true,
		KnownVersion:   p.known,
		ColumnsVersion: p.columns,
		Columns:        80,
		RunLengths:     30,
	})
	if err != nil {
		return
	}
	p.pulls = append(p.pulls, float64(time.Since(began))/1e6)
	p.known = got.GetVersion()
	if got.GetJob() != nil {
		p.job = got.GetJob()
	}
	if got.GetColumns() != nil {
		p.columns = got.GetVersion()
	}
}

func (p *swarmProbe) turn(ctx context.Context) {
	began := time.Now()
	q, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := p.cl.Recoveries(q, &falconv1.RecoveriesRequest{}); err == nil {
		p.turns = append(p.turns, float64(time.Since(began))/1e6)
	}
}

// ask asks for so long: for a picture once a second, for a turn between. It reports whether the
// engine still runs.
func (p *swarmProbe) ask(ctx context.Context, e *swarmEngine, d time.Duration) bool {
	until := time.Now().Add(d)
	for time.Now().Before(until) && ctx.Err() == nil && !e.ended() {
		p.pull(ctx)
		next := time.Now().Truncate(time.Second).Add(time.Second)
		for time.Now().Before(next) {
			p.turn(ctx)
			time.Sleep(turnEvery)
		}
	}
	return ctx.Err() == nil && !e.ended()
}

// quantile is a quantile of values, which are not empty; it sorts them.
func quantile(values []float64, percent int) float64 {
	slices.Sort(values)
	return values[len(values)*percent/100]
}

// measureSwarm asks as a console does, and compares both ends.
func measureSwarm(
	ctx context.Context,
	w io.Writer,
	o swarmOptions,
	s *swarm.Swarm,
	e *swarmEngine,
	r *swarmResult,
) error {
	conn, err := e.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	p := &swarmProbe{cl: falconv1.NewConsoleClient(conn)}
	settled := min(settleFirst, o.lasts/2)
	if !p.ask(ctx, e, settled) {
		return errors.New("the engine ended, or the measurement was cut short")
	}
	p.pulls, p.turns = nil, nil
	at := time.Now()
	cpu := processCPU(e.pid())
	own := processCPU(os.Getpid())
	was := s.Totals()
	iteration := p.job.GetIteration()
	journal := e.journalBytes()
	if !p.ask(ctx, e, o.lasts-settled) {
		return errors.New("the engine ended, or the measurement was cut short")
	}
	if len(p.pulls) == 0 || len(p.turns) == 0 {
		return errors.New("the engine answered no console")
	}
	took := time.Since(at).Seconds()
	is := s.Totals()
	r.Seconds = took
	r.EngineCores = (processCPU(e.pid()) - cpu) / took
	r.SwarmCores = (processCPU(os.Getpid()) - own) / took
	r.SamplesPerS = float64(is.Samples-was.Samples) / took
	r.TakenPerS = float64(p.job.GetIteration()-iteration) * float64(r.Ranks) / took
	r.RSSMB, r.PeakMB = processMemory(e.pid(), "VmRSS:"), processMemory(e.pid(), "VmHWM:")
	r.JournalKBPerMin = float64(e.journalBytes()-journal) / 1e3 / took * 60
	r.Dropped = is.Dropped
	r.Profiles = is.Profiles
	r.ProfileMB = float64(is.ProfileBytes) / 1e6
	r.Harm = is.Harm
	r.PullMs = [2]float64{quantile(p.pulls, 50), quantile(p.pulls, 95)}
	r.TurnMs = [2]float64{quantile(p.turns, 50), quantile(p.turns, 99)}
	list, err := p.cl.Incidents(ctx, &falconv1.IncidentsRequest{})
	for _, i := range list.GetIncidents() {
		r.Incidents = append(r.Incidents, fmt.Sprintf("%s %s, onset %d, detected %d, %s, ranks %v",
			i.GetId(), i.GetState(), i.GetOnsetIteration(), i.GetDetectedIteration(),
			i.GetVerdict().GetCause(), i.GetVerdict().GetRanks()))
	}
	return err
}

// issueSwarmCerts makes an authority, the engine's pair and one for each node in a new folder. Not by
// CA.IssueTo, which syncs each of what may be 25,000 files that last for minutes.
func issueSwarmCerts(dir string, nodes int) error {
	now := time.Now()
	ca, err := auth.NewCA("swarm", now)
	if err != nil {
		return fmt.Errorf("swarm: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("swarm: make a folder for certificates: %w", err)
	}
	errs := []error{os.WriteFile(filepath.Join(dir, auth.CACertFile), ca.CertPEM(), 0o600)}
	issue := func(q auth.Request) {
		cert, key, err := ca.Issue(q, now)
		errs = append(errs, err,
			os.WriteFile(filepath.Join(dir, q.Name+auth.CertSuffix), cert, 0o600),
			os.WriteFile(filepath.Join(dir, q.Name+auth.KeySuffix), key, 0o600))
	}
	issue(auth.Request{
		Role:  auth.RoleServer,
		Name:  "server",
		Hosts: []string{"127.0.0.1"},
	})
	for i := range nodes {
		issue(auth.Request{Role: auth.RoleAgent, Name: fmt.Sprintf("n%d", i)})
	}
	return errors.Join(errs...)
}

// swarmEngine is falcon serve in a process of its own.
type swarmEngine struct {
	cmd            *exec.Cmd
	over           chan struct{}
	listen, socket string
	journal        string
	config         string
}

// dial connects as a console on the engine's machine does.
func (e *swarmEngine) dial() (*grpc.ClientConn, error) {
	target := engineTarget{connect: "unix:" + e.socket}
	return target.dialTarget()
}

func startSwarmEngine(ctx context.Context, dir, profile string) (*swarmEngine, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no address for the swarm's engine: %w", err)
	}
	e := &swarmEngine{
		listen:  l.Addr().String(),
		socket:  filepath.Join(dir, "falcon.sock"),
		journal: filepath.Join(dir, "journal.db"),
	}
	_ = l.Close() // the engine listens there
	certs := filepath.Join(dir, "certs")
	text := fmt.Sprintf(
		"job: swarm\nstate_dir: %s\nsocket: %s\nlisten: %s\ncerts: {ca: %s/ca.crt, cert: %s/server.crt, key: %s/server.key}\npolicy: {mode: observe}\n",
		dir, e.socket, e.listen, certs, certs, certs,
	)
	e.config = filepath.Join(dir, "falcon.yaml")
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("can't write the engine's configuration: %w", err)
	}
	return e, e.launch(ctx, profile)
}

// launch starts the engine and waits for its socket.
func (e *swarmEngine) launch(ctx context.Context, profile string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("no program to start the engine with: %w", err)
	}
	e.over = make(chan struct{})
	e.cmd = exec.CommandContext(ctx, self, "serve", "--config", e.config)
	e.cmd.Stderr = os.Stderr
	e.cmd.Env = append(os.Environ(), profileVariable+"="+profile)
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("can't start the engine: %w", err)
	}
	go func(c *exec.Cmd, over chan struct{}) {
		_ = c.Wait()
		close(over)
	}(e.cmd, e.over)
	for range 200 {
		if _, err := os.Stat(e.socket); err == nil {
			return nil
		}
		if e.ended() {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	e.stop()
	return errors.New("the swarm's engine did not start")
}

func (e *swarmEngine) pid() int { return e.cmd.Process.Pid }

func (e *swarmEngine) ended() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

func (e *swarmEngine) stop() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM) // it writes its profile, where one is wanted
	select {
	case <-e.over:
	case <-time.After(10 * time.Second):
		_ = e.cmd.Process.Kill()
		<-e.over
	}
}

func (e *swarmEngine) journalBytes() int64 {
	st, err := os.Stat(e.journal)
	if err != nil {
		return 0
	}
	return st.Size()
}

// processCPU is the CPU time that a process has used, s; 0 where it can't be read.
func processCPU(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if err != nil || !found || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

// processMemory is a line of a process's status, MB.
func processMemory(pid int, line string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, line); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1000
		}
	}
	return 0
}
