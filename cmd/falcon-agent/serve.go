package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/agent/host"
	"github.com/failslow/falcon/agent/nic"
	"github.com/failslow/falcon/agent/nvml"
	"github.com/failslow/falcon/agent/ship"
	"github.com/failslow/falcon/agent/store"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
)

// serveAgent runs the daemon until SIGINT or SIGTERM.
func serveAgent(cfg agent.Config) error {
	log, err := newLogger(cfg.LogLevel)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	own, err := agent.OpenFolder(cfg, log)
	if err != nil {
		return err
	}
	if cfg.Store.Listen != "" {
		p, err := store.Open(store.Options{
			Listen:   cfg.Store.Listen,
			Upstream: cfg.Store.Upstream,
			Log:      log,
		})
		if err != nil {
			return err
		}
		defer p.Close()
	}
	reports := &mailbox{}
	gpus := openNVMLProbe(cfg, reports)
	stopGPUs := func() {}
	stopPorts := func() {}
	if gpus != nil {
		stopGPUs = sync.OnceFunc(gpus.Close)
		defer stopGPUs()
		if why := gpus.Err(); why != "" {
			log.Warn("no GPU telemetry", slog.String("why", why))
		}
	}
	ports := openNICProbe(cfg, reports)
	opt := agent.Options{
		Probe:  hardwareFrame(cfg, gpus, ports),
		Folder: own,
		Log:    log,
		Old:    oldKernel(),
		Skew:   labClockSkew(cfg.Lab.State != ""),
	}
	if ports != nil {
		stopPorts = sync.OnceFunc(ports.Close)
		defer stopPorts()
		opt.NIC = ports.Of
	}
	a := agent.New(cfg, opt)
	boot := newBootID()
	from := a.TakeOver()
	if from != nil {
		boot = from.Boot
	}
	stream, err := ship.Open(ship.Config{
		Address:    cfg.Engine,
		ServerName: cfg.Server,
		CertFile:   cfg.Cert,
		KeyFile:    cfg.Key,
		CAFile:     cfg.CA,
		FramesMax:  cfg.SpoolFrames,
		BytesMax:   cfg.SpoolMb << 20,
		Log:        log,
		Hello:      newHello(cfg, gpus, boot),
		From:       from,
		Dial:       labDialer(cfg.Lab.State != ""),
		Welcome:    agent.NoteEngine(log, cfg.Job, a.Welcome),
		Standing:   a.Standing,
		Standbys:   a.Standbys,
		Command:    a.Command,
		Ask:        a.Ask,
		Peek:       a.Peek,
	})
	if err != nil {
		return err
	}
	reports.openMailbox(stream.Send)
	a.Bind(stream)
	log.Info(
		"agent started",
		slog.String("node", cfg.Node),
		slog.String("engine", cfg.Engine),
		slog.String("shm_dir", cfg.ShmDir),
	)
	err = a.Run(ctx)
	// what they report last is sent, or handed over
	for _, stop := range []func(){stopGPUs, stopPorts, stream.Close} {
		stop()
	}
	if err := a.HandOver(stream.Handover()); err != nil {
		log.Warn("nothing is handed over", slog.Any("err", err))
	}
	return err
}

func newLogger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%w: log_level %q is not debug, info, warn or error", agent.ErrConfig, level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// oldKernel reads the settings of tests and labs that have the agent do without
// what newer kernels have.
func oldKernel() agent.OldKernel {
	return agent.OldKernel{
		NoPidfd:    os.Getenv("FALCON_NO_PIDFD") != "",
		NoExitInfo: os.Getenv("FALCON_NO_EXIT_INFO") != "",
	}
}

// openNVMLProbe starts the GPU probe. On a lab's node the stand-in library finds
// its node by the environment.
func openNVMLProbe(cfg agent.Config, to *mailbox) *nvml.Prober {
	if cfg.Lab.State != "" {
		_ = os.Setenv("FALCON_LAB_STATE", cfg.Lab.State)
		_ = os.Setenv("FALCON_LAB_NODE", strconv.Itoa(cfg.Lab.Node))
	}
	if !cfg.NVML.Enabled {
		return nil
	}
	return nvml.Open(nvml.Config{
		Node:    falcon.Node(cfg.Node),
		Library: cfg.NVML.Library,
		Period:  time.Duration(cfg.TelemetryMs) * time.Millisecond,
		Event: func(e nvml.Event) {
			to.putFrame(agent.DeviceFrame(string(e.Device), e.AtNs, e.Fatal, e.Code, e.Text))
		},
	})
}

// openNICProbe starts the network probe; nil where none is wanted.
func openNICProbe(cfg agent.Config, to *mailbox) *nic.Prober {
	if cfg.NIC.Sysfs == "" {
		return nil
	}
	of := map[falcon.Device]falcon.NIC{}
	for device, port := range cfg.NICs {
		of[falcon.Device(device)] = falcon.NIC(port)
	}
	return nic.Open(nic.Config{
		Node:   falcon.Node(cfg.Node),
		Sysfs:  cfg.NIC.Sysfs,
		Of:     of,
		Period: time.Duration(cfg.TelemetryMs) * time.Millisecond,
		Down:   time.Duration(cfg.NIC.DownS) * time.Second,
		Event: func(e nic.Event) {
			to.putFrame(agent.DeviceFrame(string(e.NIC), e.AtNs, true, 0, e.Text))
		},
	})
}

// hardwareFrame joins the readings of GPUs, ports and host in one frame.
func hardwareFrame(
	cfg agent.Config,
	gpus *nvml.Prober,
	ports *nic.Prober,
) func(time.Time, map[falcon.Rank]int) *falconv1.AgentFrame {
	conf := host.Config{
		Node:   falcon.Node(cfg.Node),
		Proc:   cfg.Host.Proc,
		Cgroup: cfg.Host.Cgroup,
	}
	if !cfg.Lab.RealCPU {
		conf.LabState = cfg.Lab.State
		conf.LabNode = cfg.Lab.Node
		conf.LabGPUs = cfg.Lab.GPUs
	}
	cpu := host.New(conf)
	return func(now time.Time, pids map[falcon.Rank]int) *falconv1.AgentFrame {
		var readings []falcon.GPUReading
		if gpus != nil {
			readings = gpus.Latest(now)
		}
		var nics []falcon.NICReading
		if ports != nil {
			nics = ports.Latest(now)
		}
		return agent.TelemetryFrame(readings, nics, cpu.Read(now, pids))
	}
}

func newHello(cfg agent.Config, gpus *nvml.Prober, boot string) *falconv1.Hello {
	h := &falconv1.Hello{
		Agent:       cfg.Node,
		Node:        cfg.Node,
		Boot:        boot,
		Version:     version.Own(),
		Protocol:    falconv1.ProtocolRevision,
		Job:         cfg.Job,
		Emulated:    cfg.Lab.State != "",
		Sysfs:       cfg.Host.Cgroup,
		LaunchRanks: int32(cfg.Launch.Ranks()),
		RankTable:   cfg.RankTable != "",
		Formats:     agent.HelloFormats(),
	}
	if gpus != nil {
		h.Devices = gpus.Devices()
	}
	return h
}

// newBootID is new for every start that takes nothing over: the engine counts frames from 1 again.
func newBootID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
