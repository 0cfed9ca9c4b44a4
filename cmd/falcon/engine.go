package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	group "github.com/oklog/run"
	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/rpc"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery/restart"
)

// Names inside the state directory, and where agents look by default.
const (
	journalName   = "journal.db"
	journalHead   = "journal.head"
	socketName    = "falcon.sock"
	certsName     = "certs"
	consoleLog    = "console.log"
	defaultListen = "127.0.0.1:7440"
)

// engineConfig is falcon.yaml.
type engineConfig struct {
	trustJournal bool // without hearing nodes first: in tests

	Job   string       `yaml:"job"`   // name shown to operators
	Probe history.Kind `yaml:"probe"` // its jobs are sampling jobs of this kind; "" = training
	Mesh  falcon.Mesh  `yaml:"mesh"`  // of the job, where its adapter declares none
	// journal, socket and certificates; default: see defaultStateDir
	StateDir string `yaml:"state_dir"`
	Socket   string `yaml:"socket"` // default: falcon.sock in the state directory
	// HOST:PORT for agents and remote consoles; "none" = local only
	Listen     string         `yaml:"listen"`
	Certs      auth.Files     `yaml:"certs"` // default: ca and server in the state directory's certs
	Policy     policyConfig   `yaml:"policy"`
	PolicyFile string         `yaml:"policy_file"` // instead of policy: the same keys in a file of their own
	Restart    restart.Config `yaml:"restart"`
	Detect     detect.Config  `yaml:"detect"`

	Validation validationConfig `yaml:"validation"`
	Mitigate   mitigate.Config  `yaml:"mitigate"`
	Recovery   engine.Recovery  `yaml:"recovery"`
	Store      storeConfig      `yaml:"store"`
	Journal    journalConfig    `yaml:"journal"`
	SSH        sshConfig        `yaml:"ssh"`

	// "" = 80 % of the cgroup's, "none" = no limit; GOMEMLIMIT wins
	MemoryLimit string `yaml:"memory_limit"`
	// list of revoked certificates; default: revoked beside certs.ca
	Revoked string `yaml:"revoked"`
	// agents' certificates are renewed, with the authority's key beside certs.ca
	Renew      bool          `yaml:"renew"`
	StreamMost time.Duration `yaml:"stream_most"` // how old a stream may become; 0 = 24h

	lookEvery time.Duration // at certificates and parts; for tests
}

// defaultStateDir follows the XDG base directories; FALCON_STATE_DIR wins.
func defaultStateDir() string {
	if d := os.Getenv("FALCON_STATE_DIR"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "falcon")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return stateDirBelow(home)
	}
	if who, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && who.HomeDir != "" {
		return stateDirBelow(who.HomeDir)
	}
	return noStateDir
}

// noStateDir is the state directory of a user who has no home: there is none, and nobody
// can prepare one.
const noStateDir = "/nonexistent/falcon"

func stateDirBelow(home string) string {
	return filepath.Join(home, ".local", "state", "falcon")
}

// stateNames are the files and folders that an engine opens by name in its state directory; what
// stands in the place of the socket is looked at where it is made.
var stateNames = []string{journalName, journalHead, certsName, hostKeyName, consoleLog}

// claimStateDir makes the state directory, and refuses one in which others have a say: what
// lies there decides who comes in.
func claimStateDir(dir string) error {
	if dir == noStateDir {
		return fmt.Errorf(
			"%w: state_dir: none of FALCON_STATE_DIR, XDG_STATE_HOME and HOME is set, and this user has no home: set state_dir",
			errUsage,
		)
	}
	if err := auth.OwnFolder(dir); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	for _, name := range stateNames {
		if err := auth.OwnPlace(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("state_dir: %w", err)
		}
	}
	return nil
}

// loadEngineConfig reads falcon.yaml strictly; "" means the defaults.
func loadEngineConfig(path string) (engineConfig, error) {
	cfg := engineConfig{Detect: detect.DefaultConfig()}
	if path != "" {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return cfg, fmt.Errorf("%w: no configuration file %s; give one with --config", errUsage, path)
		}
		if err != nil {
			return cfg, fmt.Errorf("%w: %w", errUsage, err)
		}
		if err := decodeStrict(b, &cfg, path); err != nil {
			return cfg, err
		}
	}
	if err := cfg.loadPolicy(filepath.Dir(path)); err != nil {
		return cfg, err
	}
	cfg.fillDefaults()
	cfg.Policy.fillUndo()
	return cfg, cfg.validate()
}

// decodeStrict reads YAML of from into v and refuses unknown keys: they would
// have no effect.
func decodeStrict(b []byte, v any, from string) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s: %s", errUsage, from, yamlSentence(err))
	}
	return nil
}

// yamlSentence makes the decoder's list of errors one line without Go's types.
func yamlSentence(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "yaml: "), " in type ")
	for _, name := range []string{"Mode", "Rung", "Variant", "Node"} {
		s = strings.ReplaceAll(s, "into falcon."+name, "into string")
	}
	return strings.Join(strings.Fields(s), " ")
}

func (c *engineConfig) fillDefaults() {
	setDefault(&c.StateDir, defaultStateDir())
	setDefault(&c.Job, "job")
	setDefault(&c.Listen, defaultListen)
	setDefault(&c.Socket, filepath.Join(c.StateDir, socketName))
	setDefault(&c.Policy.Mode, falcon.ModeApprove)
	setDefault(&c.Policy.Cap, falcon.RungS1)
	setDefault(&c.Validation.Mode, validationAuto)
	files := auth.FilesIn(filepath.Join(c.StateDir, certsName), string(auth.RoleServer))
	setDefault(&c.SSH.HostKey, filepath.Join(c.StateDir, hostKeyName))
	setDefault(&c.Certs.CA, files.CA)
	setDefault(&c.Certs.Cert, files.Cert)
	setDefault(&c.Certs.Key, files.Key)
	setDefault(&c.Revoked, filepath.Join(filepath.Dir(c.Certs.CA), auth.RevokedFile))
}

func setDefault[T ~string](s *T, value T) {
	if *s == "" {
		*s = value
	}
}

func (c *engineConfig) validate() error {
	if err := engine.CheckPolicy(c.Policy.policy()); err != nil {
		return fmt.Errorf("%w: policy: %w", errUsage, err)
	}
	for _, check := range []func() error{
		c.Validation.validate, func() error {
			return checkRestart(c.Restart)
		}, c.Mitigate.Check, c.Recovery.Machine.Check,
		c.checkProbe, c.Store.validate, c.Journal.validate, c.checkAdmission, c.Detect.Check,
	} {
		if err := check(); errors.Is(err, errUsage) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	return nil
}

// checkProbe refuses kinds of sampling jobs that there are none of.
func (c *engineConfig) checkProbe() error {
	switch c.Probe {
	case "", history.ProbeA, history.ProbeB:
		return nil
	}
	return fmt.Errorf(
		"%w: probe: %q is neither a (sampling jobs of one node) nor b (of several); leave it out for training",
		errUsage, c.Probe,
	)
}

// engineHandle is a running engine with its doors open.
type engineHandle struct {
	Socket  string // path of the local socket
	Address string // HOST:PORT for agents, "" when local only
	Store   string // HOST:PORT of the job's rendezvous store, "" = none
	SSH     string // HOST:PORT of the SSH front, "" = none, or not so far

	care  *care
	stop  context.CancelFunc
	ended chan struct{}
	err   error // valid once ended is closed
	once  sync.Once
}

// startEngine opens the journal, restores the engine, opens its doors and
// returns. The engine runs until ctx ends, Close is called, or its journal
// fails. It is what serve, console and lab share.
func startEngine(ctx context.Context, cfg engineConfig, log *slog.Logger) (*engineHandle, error) {
	if err := claimStateDir(cfg.StateDir); err != nil {
		return nil, err
	}
	j, err := journal.Open(filepath.Join(cfg.StateDir, journalName))
	if err != nil {
		return nil, err
	}
	if r := j.Report(); !r.Anchored && r.Head.Seq > 0 {
		log.Warn(
			"the journal had no head file beside it: that its end is whole was not checked; from now on it is",
			slog.Uint64("records", r.Head.Seq),
		)
	}
	h, err := startFromJournal(ctx, j, cfg, log)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return h, nil
}

func startFromJournal(
	ctx context.Context,
	j *journal.Journal,
	cfg engineConfig,
	log *slog.Logger,
) (*engineHandle, error) {
	store, err := cfg.Store.openStore(log)
	if err != nil {
		return nil, err
	}
	h, err := startWith(ctx, j, store, cfg, log)
	if err != nil && store != nil {
		err = errors.Join(err, store.Close())
	}
	return h, err
}

func startWith(
	ctx context.Context,
	j *journal.Journal,
	store rendezvous,
	cfg engineConfig,
	log *slog.Logger,
) (*engineHandle, error) {
	conf := engine.Config{
		JobName:      cfg.Job,
		Host:         hostName(),
		JobKind:      cfg.Probe,
		Mesh:         cfg.Mesh,
		Journal:      j,
		Detect:       cfg.Detect,
		Mitigate:     cfg.Mitigate,
		Policy:       cfg.Policy.policy(),
		Validation:   cfg.Validation.settings(),
		Restart:      cfg.Restart,
		Recovery:     cfg.Recovery,
		Retention:    cfg.Journal.retention(),
		Log:          log,
		Clock:        lab.EmulatedClock(clock.System),
		TrustJournal: cfg.trustJournal,
	}
	conf.Recovery.Beat = cfg.Recovery.Machine.Beat
	if store != nil {
		conf.Recovery.Store = store
	}
	e, err := engine.New(conf)
	if err != nil {
		return nil, err
	}
	server, care, err := openDoors(e, cfg, log)
	if err != nil {
		return nil, err
	}
	ssh := newSSHFront(&cfg.SSH, server, log)
	copies := &copying{}
	care.parts = append(care.parts, copies)
	ctx, cancel := context.WithCancel(ctx)
	h := &engineHandle{
		Socket:  server.Socket(),
		Address: server.Address(),
		care:    care,
		stop:    cancel,
		ended:   make(chan struct{}),
	}
	if store != nil {
		h.Store = store.Addr()
	}
	if ssh != nil {
		h.SSH = ssh.address()
		care.parts = append(care.parts, ssh)
	}
	go h.runParts(ctx, e, server, ssh, store, j, func(ctx context.Context) error {
		return cfg.Journal.keepCopies(ctx, j, copies.note)
	})
	return h, nil
}

// hostName is where the engine runs, for people; "" where the machine does not say.
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// runParts ends the parts in their order: the engine first, so that watchers and agents
// are notified; then the servers, consoles' before agents'; the journal last.
func (h *engineHandle) runParts(
	ctx context.Context,
	e *engine.Engine,
	server *rpc.Server,
	ssh *sshFront,
	store rendezvous,
	j *journal.Journal,
	copies func(context.Context) error,
) {
	defer close(h.ended)
	var g group.Group
	engineCtx, cancel := context.WithCancel(ctx)
	g.Add(func() error {
		return e.Run(engineCtx)
	}, func(error) { cancel() })
	copyCtx, stopCopies := context.WithCancel(ctx)
	g.Add(func() error { return copies(copyCtx) }, func(error) { stopCopies() })
	g.Add(func() error {
		h.care.watchLimits(engineCtx)
		return nil
	}, func(error) { cancel() })
	g.Add(func() error {
		<-e.Done()
		closeDoors(ssh, server)
		return nil
	}, func(error) {})
	h.err = g.Run()
	if store != nil {
		h.err = errors.Join(h.err, store.Close())
	}
	h.err = errors.Join(h.err, j.Close())
}

func closeDoors(ssh *sshFront, server *rpc.Server) {
	if ssh != nil {
		ssh.closeFront()
	}
	server.Close()
}

// Wait returns when the engine has ended: nil after Close or the context's
// end, else why it could not go on.
func (h *engineHandle) Wait() error {
	<-h.ended
	return h.err
}

// Ended is closed when the engine has ended.
func (h *engineHandle) Ended() <-chan struct{} { return h.ended }

// Close stops the engine and waits until its journal is closed.
func (h *engineHandle) Close() error {
	h.once.Do(h.stop)
	return h.Wait()
}
