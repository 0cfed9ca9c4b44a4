package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/agent/launch"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/plain"
)

// Bounds of waiting in a lab run.
const (
	engineWait    = 20 * time.Second // for a starting engine to answer
	engineRestart = 500 * time.Millisecond
	settleWait    = 3 * time.Second // for the engine to hear the job's end
	referenceWait = 15 * time.Minute
)

// labPolicies says what --approve lets happen without a person.
var labPolicies = map[string]policyConfig{
	"never": labPolicyOf(falcon.ModeApprove, falcon.RungS1, falcon.RecoveryPolicy{
		Approval: falcon.ApprovalPerson,
	}),
	"s2":  labPolicyOf(falcon.ModeAuto, falcon.RungS2, labRecovery),
	"s3":  labPolicyOf(falcon.ModeAuto, falcon.RungS3, labRecovery),
	"all": labPolicyOf(falcon.ModeAuto, falcon.RungS4, labRecovery),
}

func labPolicyOf(mode falcon.Mode, highest falcon.Rung, r falcon.RecoveryPolicy) policyConfig {
	return policyConfig{Policy: falcon.Policy{
		Mode:     mode,
		Cap:      highest,
		Owner:    "lab",
		Recovery: r,
	}}
}

// labRecovery lets recoveries begin by themselves, as often as a lab kills: it
// plays in a minute what a cluster does in days.
var labRecovery = falcon.RecoveryPolicy{PerHour: 1000}

// labValidation lets the detector test what it suspects. The tests are small:
// the emulated links are narrow, the matrix products done for real. A lab plays
// in a minute what a cluster does in days, so the hourly limit is out of the way.
var labValidation = validationConfig{
	Mode: validationAuto,
	Validation: engine.Validation{
		GEMMSide:     128,
		Repeats:      3,
		MessageBytes: 256 << 10,
		PerHour:      1000,
	},
}

// labRun is one lab with its engine.
type labRun struct {
	o        labOptions
	sc       lab.Scenario
	policy   policyConfig
	recovery engine.Recovery
	screen   bool // a console on the terminal
	lab      *lab.Lab
	config   string // falcon.yaml
	socket   string
	address  string
	out      io.Writer
	opt      lab.Options
}

func runScenario(ctx context.Context, c *cobra.Command, o labOptions) error {
	r, err := newLabRun(c, o)
	if err != nil {
		return err
	}
	if err := r.prepare(); err != nil {
		return err
	}
	defer r.lab.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if r.screen {
		return r.withConsole(ctx, stop)
	}
	return r.headless(ctx)
}

func newLabRun(c *cobra.Command, o labOptions) (*labRun, error) {
	sc, err := loadScenario(o)
	if err != nil {
		return nil, err
	}
	r := &labRun{o: o, sc: sc, out: c.OutOrStdout()}
	r.screen = !o.headless && hasScreen()
	if r.screen || o.prefs != "" { // before a job starts for a console that can't
		if _, err := loadPrefs(o.prefs); err != nil {
			return nil, err
		}
	}
	if r.policy, err = labPolicy(sc, o.approve, r.screen); err != nil {
		return nil, err
	}
	if r.recovery, err = scenarioRecovery(sc, r.policy); err != nil {
		return nil, err
	}
	for flag, path := range map[string]string{
		"--record":  o.record,
		"--report":  o.report,
		"--journal": o.journal,
	} {
		if err := refuseExisting(flag, path); err != nil {
			return nil, err
		}
	}
	if !slices.Contains([]string{"on", "plugin", "off"}, o.hook) {
		return nil, fmt.Errorf("%w: --hook is %q, it must be on, plugin or off", errUsage, o.hook)
	}
	for name, v := range map[string]string{"--marks": o.marks, "--adapter": o.adapter} {
		if v != "on" && v != "off" {
			return nil, fmt.Errorf("%w: %s is %q, it must be on or off", errUsage, name, v)
		}
	}
	return r, nil
}

// prepare makes the lab, its certificates and the engine's configuration.
func (r *labRun) prepare() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r.opt = lab.Options{
		Bin:         filepath.Dir(self),
		Seed:        r.o.seed,
		Hook:        r.o.hook != "off",
		Plugin:      r.o.hook == "plugin",
		Marks:       r.o.marks == "on",
		NoAdapter:   r.o.adapter == "off",
		Unpaced:     r.o.unpaced,
		Build:       version.Own(),
		AgentConfig: r.agentConfig,
		Attended:    r.screen || r.policy.Recovery.Approval == falcon.ApprovalPerson,
		Hold:        r.holds(),
	}
	if r.o.train != "" {
		if r.opt.Train, err = ownTraining(r.o, filepath.Dir(self)); err != nil {
			return err
		}
		r.o.noRef = true // its losses mean nothing: no kernel computes
	}
	if r.lab, err = lab.New(r.sc, r.opt); err != nil {
		return err
	}
	if err := r.writeConfig(); err != nil {
		r.lab.Close()
		return err
	}
	return nil
}

// holds reports whether faults wait for a decision: where an operator watches a shipped scenario and
// has not asked for a length or a report, which compares the whole run with an undisturbed one.
func (r *labRun) holds() bool {
	return r.screen &&
		r.o.hold &&
		slices.Contains(lab.Names(), r.o.scenario) &&
		r.o.iterations == 0 &&
		r.o.report == ""
}

func (r *labRun) writeConfig() error {
	var err error
	if r.address, err = freeAddress(); err != nil {
		return err
	}
	if err := certsInit(r.certsDir(), nil, time.Now()); err != nil {
		return err
	}
	r.socket = filepath.Join(r.lab.Dir(), socketName)
	r.config = filepath.Join(r.lab.Dir(), "falcon.yaml")
	store := storeConfig{}
	if t := r.opt.Train; t != nil {
		store.Listen = t.Store
	}
	return writeYAML(r.config, engineConfig{
		Store:      store,
		Job:        lab.Job,
		StateDir:   r.lab.Dir(),
		Socket:     r.socket,
		Listen:     r.address,
		Certs:      auth.FilesIn(r.certsDir(), string(auth.RoleServer)),
		Policy:     r.policy,
		Recovery:   r.recovery,
		Validation: labValidation,
		Mitigate:   mitigate.Config{OverheadsMs: r.sc.Overheads},
	})
}

func (r *labRun) certsDir() string {
	return filepath.Join(r.lab.Dir(), certsName)
}

func writeYAML(path string, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// freeAddress picks a free port; the engine takes it a moment later, and again
// whenever it is restarted.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// agentConfig writes one node's agent.yaml with a certificate of its own.
func (r *labRun) agentConfig(n lab.NodeSetup) (string, error) {
	if err := certsIssue(r.certsDir(), auth.Request{
		Role: auth.RoleAgent,
		Name: string(n.Node),
		Life: auth.LeafLife,
	}); err != nil {
		return "", err
	}
	f := auth.FilesIn(r.certsDir(), string(n.Node))
	cfg := agent.Defaults()
	cfg.Node = string(n.Node)
	cfg.Job = lab.Job
	cfg.Engine = r.address
	cfg.Cert = f.Cert
	cfg.Key = f.Key
	cfg.CA = f.CA
	cfg.ShmDir = n.ShmDir
	cfg.NVML.Library = n.NvmlPath
	cfg.NIC.Sysfs = n.Sysfs
	cfg.NICs = n.NICs
	if len(n.Launch.Command) > 0 {
		cfg.Launch = launch.Config{
			Command:    n.Launch.Command,
			Env:        n.Launch.Env,
			Dir:        n.Launch.Dir,
			NodeRanks:  n.Launch.Ranks,
			LogDir:     n.Launch.Logs,
			Checkpoint: n.Launch.Checkpoint,
		}
	}
	kmsg := filepath.Join(n.Dir, "kmsg-"+string(n.Node)) // what an emulated kernel says is appended here
	if err := os.WriteFile(kmsg, nil, 0o600); err != nil {
		return "", err
	}
	cfg.Logs = agent.LogsConfig{
		Enabled: true,
		Files:   []string{n.Outputs},
		Kernel:  kmsg,
	}
	cfg.Lab = agent.LabConfig{
		State:   n.State,
		Node:    n.Index,
		GPUs:    len(n.Devices),
		RealCPU: r.sc.RealCPU,
	}
	file := filepath.Join(n.Dir, "agent-"+string(n.Node)+".yaml")
	return file, writeYAML(file, cfg)
}

// dialEngine dials the engine's socket; it reconnects when the engine restarts.
func (r *labRun) dialEngine() (falconv1.ConsoleClient, func(), error) {
	conn, err := feed.Dial(r.socket)
	if err != nil {
		return nil, nil, err
	}
	return falconv1.NewConsoleClient(conn), func() { _ = conn.Close() }, nil
}

// engineCommand is this binary again, for an engine in a process of its own:
// killing it must leave the job alone.
func engineCommand(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.Command(self, args...), nil
}

// keepServing runs `falcon serve` until ctx ends, and starts it again when it
// dies, as a service manager would.
func (r *labRun) keepServing(ctx context.Context) error {
	log, err := os.OpenFile(
		filepath.Join(r.lab.Dir(), "logs", "engine.log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND,
		0o600,
	)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		cmd, err := engineCommand("serve", "--config", r.config)
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := r.lab.Spawn(cmd, false); err != nil {
			return fmt.Errorf("can't start the engine: %w", err)
		}
		r.lab.SetEngine(cmd.Process.Pid, r.socket)
		_ = waitOrStop(ctx, cmd)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cmp.Or(r.lab.Trouble().EngineAway(), engineRestart)):
		}
	}
}

func endsWithin(ended <-chan error, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}

// awaitEngine returns once the engine answers a snapshot.
func awaitEngine(ctx context.Context, client falconv1.ConsoleClient) error {
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	for {
		_, err := client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engine did not answer within %s: %w", engineWait, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// headless plays the scenario with a plain stream and ends with what happened to each incident.
func (r *labRun) headless(ctx context.Context) error {
	engineCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.keepServing(engineCtx) // its log has the reason; without it nothing answers
	}()
	stopEngine := func() {
		cancel()
		<-served
	}
	defer stopEngine()

	client, hangUp, err := r.dialEngine()
	if err != nil {
		return err
	}
	defer hangUp()
	if err := awaitEngine(ctx, client); err != nil {
		return r.withEngineLog(err)
	}
	return recording(client, consoleOptions{Record: r.o.record, From: r.recordedFrom()}, func() error {
		return r.playAsLines(ctx, client, stopEngine)
	})
}

// recordedFrom is what a recording says it shows.
func (r *labRun) recordedFrom() string {
	return "falcon lab, scenario " + r.o.scenario
}

// playAsLines plays the scenario beside its plain stream.
func (r *labRun) playAsLines(ctx context.Context, client falconv1.ConsoleClient, stopEngine func()) error {
	streamCtx, stopStream := context.WithCancel(ctx)
	streamed := make(chan error, 1)
	go func() {
		streamed <- plain.Run(streamCtx, client, r.out, plain.Options{})
	}()
	err := r.playScenario(ctx)
	endStream(streamed, stopStream)
	err = errors.Join(err, r.finishReport(ctx, client))
	stopEngine()
	return errors.Join(err, r.keepJournal())
}

// keepJournal copies the journal out of the lab's folder, once its engine has
// ended.
func (r *labRun) keepJournal() error {
	if r.o.journal == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(r.lab.Dir(), journalName))
	if err == nil {
		err = os.WriteFile(r.o.journal, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	return nil
}

// endStream gives the plain stream time to print the last lines.
func endStream(streamed <-chan error, stop context.CancelFunc) {
	if !endsWithin(streamed, settleWait) {
		stop()
		<-streamed
	}
	stop()
}

// playScenario starts the cluster and runs it to its end, or until it is stopped.
func (r *labRun) playScenario(ctx context.Context) error {
	if err := r.lab.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-r.lab.Stopped():
			stopped = true
			cancel()
		case <-ctx.Done():
		}
	}()
	err := r.lab.Run(ctx)
	cancel()
	<-done
	if stopped {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted at iteration %d", r.lab.Iterations())
	}
	return err
}

// finishReport writes the report, after the reference run that it is compared with.
func (r *labRun) finishReport(ctx context.Context, client falconv1.ConsoleClient) error {
	if ctx.Err() != nil {
		return nil
	}
	var ref lab.Reference
	if !r.o.noRef {
		refCtx, cancel := context.WithTimeout(ctx, referenceWait)
		defer cancel()
		var err error
		if ref, err = lab.RunReference(refCtx, r.sc, r.opt); err != nil {
			return err
		}
	}
	rep, err := r.lab.Report(ctx, client, ref)
	if err != nil {
		return err
	}
	printSummary(r.out, rep)
	if r.o.report == "" {
		return nil
	}
	return lab.WriteReport(r.o.report, rep)
}

// printSummary says in plain lines what the run showed.
func printSummary(w io.Writer, r lab.Report) {
	fmt.Fprintf(w, "run: %d iterations of %s on %d emulated nodes; emulated: %v\n",
		len(r.Iterations), r.Layout, r.Nodes, r.Emulated)
	line := func(name string, v *float64, unit string, scale float64) {
		if v != nil {
			fmt.Fprintf(w, "%s: %s %s\n", name, strconv.FormatFloat(*v*scale, 'f', 1, 64), unit)
		}
	}
	line("healthy iteration", r.HealthyMs, "ms", 1)
	line("slow iteration", r.SlowMs, "ms", 1)
	line("mitigated iteration", r.MitigatedMs, "ms", 1)
	line("iteration after relief and revert", r.AfterMs, "ms", 1)
	for _, s := range r.Swaps {
		fmt.Fprintf(w, "placement %d: %d ranks took it, %d went on without, %.0f ms\n",
			s.Order, len(s.Applied), len(s.Refused), s.TotalMs)
	}
	line("slowdown removed", r.SlowdownRemoved, "%", 100)
	for _, s := range r.Restarts {
		fmt.Fprintf(w, "restart %d: went on with iteration %d after %.0f ms\n",
			s.Generation, s.FirstIteration, s.DownMs)
	}
	line("the cost model's bound for it", r.SlowdownBound, "%", 100)
	for _, s := range r.Recoveries {
		fmt.Fprintln(w, recoveryLine(s))
	}
	if r.ReferenceSha != "" {
		fmt.Fprintf(w, "final loss: %.6f, undisturbed reference %.6f\n", r.FinalLoss, r.ReferenceLoss)
	}
}

// recoveryLine says in one line what a recovery came to.
func recoveryLine(s lab.RecoveryReport) string {
	if s.State != string(falcon.RecoveryResumed) {
		return fmt.Sprintf("%s (%s): %s: %s", s.ID, s.Fault, s.State, s.Reason)
	}
	kept := "every survivor kept its process"
	if !s.SurvivorPidsKept {
		kept = "survivors changed their processes"
	}
	return fmt.Sprintf(
		"%s (%s): known after %.0f ms, trains again from iteration %d after %.0f ms down, %d iteration run again, %s",
		s.ID, s.Fault, s.DetectedMs, s.ResumeIteration, s.DownMs, s.LostIterations, kept,
	)
}

// withEngineLog adds the engine's last words to an error.
func (r *labRun) withEngineLog(err error) error {
	b, readErr := os.ReadFile(filepath.Join(r.lab.Dir(), "logs", "engine.log"))
	if readErr != nil || len(b) == 0 {
		return err
	}
	const most = 400
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return fmt.Errorf("%w; the engine said: %s", err, b)
}
