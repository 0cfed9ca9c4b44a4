package agent

import (
	"bytes"
	"cmp"
	_ "embed" // of Example
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/peek"
)

// ErrConfig is wrapped by every error about the configuration file.
var ErrConfig = errors.New("agent: bad configuration")

// configBytesMax bounds the configuration file.
const configBytesMax = 1 << 20

// Config is the agent's configuration file (YAML; unknown keys are errors).
type Config struct {
	// name of this machine; ranks' devices are NODE.gINDEX; empty = its hostname up
	// to the first dot
	Node   string `yaml:"node"`
	Job    string `yaml:"job"`         // only this job's processes; empty = every job's
	Engine string `yaml:"engine"`      // HOST:PORT
	Server string `yaml:"server_name"` // name in the engine's certificate; empty = HOST
	Cert   string `yaml:"cert"`
	Key    string `yaml:"key"`
	CA     string `yaml:"ca"`
	ShmDir string `yaml:"shm_dir"`
	User   string `yaml:"user,omitempty"` // whose processes are followed; empty = see jobUser
	// RankTable is the file for the rank tables of recoveries; empty = kept in memory only.
	RankTable string `yaml:"rank_table"`
	LogLevel  string `yaml:"log_level"` // debug, info, warn, error

	BeatMs      int `yaml:"beat_ms"`
	TelemetryMs int `yaml:"telemetry_ms"`
	DrainMs     int `yaml:"drain_ms"`
	SpoolFrames int `yaml:"spool_frames"`
	SpoolMb     int `yaml:"spool_mb"`

	NVML NVMLConfig `yaml:"nvml"`
	NIC  NICConfig  `yaml:"nic"`
	// NIC by device, "n1.g0": "n1.nic0"; the rest is found by PCI distance
	NICs map[string]string `yaml:"nics"`
	Host HostConfig        `yaml:"host"`

	Launch launch.Config `yaml:"launch"`

	Logs LogsConfig `yaml:"logs"`

	Store StoreConfig `yaml:"store"`

	Lab LabConfig `yaml:"lab"`
}

// NVMLConfig is about the GPU probe.
type NVMLConfig struct {
	Enabled bool   `yaml:"enabled"`
	Library string `yaml:"library"` // path or soname; empty = libnvidia-ml.so.1
}

// NICConfig is about the network probe.
type NICConfig struct {
	Sysfs string `yaml:"sysfs"`  // root of sysfs; empty = no network probe
	DownS int    `yaml:"down_s"` // seconds that a port must be down to be reported as a fault
}

// HostConfig is about the CPU probe.
type HostConfig struct {
	Proc   string `yaml:"proc"`
	Cgroup string `yaml:"cgroup"` // where cgroups are mounted, or the ranks' cgroup itself
}

// LogsConfig is about what people may have read of this node.
type LogsConfig struct {
	Enabled bool     `yaml:"enabled"`
	Files   []string `yaml:"files"`  // where a launcher keeps what a rank prints
	Kernel  string   `yaml:"kernel"` // the kernel's messages; empty = they are not read
}

// StoreConfig is about the stand-in for the job's rendezvous store.
type StoreConfig struct {
	Listen   string `yaml:"listen"`   // HOST:PORT on loopback; empty = no stand-in
	Upstream string `yaml:"upstream"` // HOST:PORT of the store
}

// LabConfig is set on the emulated nodes of a lab only.
type LabConfig struct {
	State string `yaml:"state"` // the lab's state file
	Node  int    `yaml:"node"`  // this node's index in it
	GPUs  int    `yaml:"gpus"`  // GPUs of the node that ranks use, 0 = all

	RealCPU bool `yaml:"real_cpu"` // the CPU's counters are the kernel's, of the ranks' own cgroups
}

// Example is a configuration file with every key and its default.
//
//go:embed agent.example.yaml
var Example string

// Defaults is the configuration before a file is read.
func Defaults() Config {
	return Config{
		ShmDir:      "/dev/shm",
		LogLevel:    "info",
		BeatMs:      2000,
		TelemetryMs: 1000,
		DrainMs:     50,
		SpoolFrames: 4096,
		SpoolMb:     16,
		NVML:        NVMLConfig{Enabled: true},
		NIC:         NICConfig{Sysfs: "/sys", DownS: 5},
		Host:        HostConfig{Proc: "/proc", Cgroup: "/sys/fs/cgroup"},
		Logs: LogsConfig{
			Enabled: true,
			Files:   []string{},
			Kernel:  "/dev/kmsg",
		},
	}
}

// ReadConfig reads and checks a configuration file.
func ReadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Config{}, fmt.Errorf(
			"%w: %w; give another with --config (falcon-agent --help shows every key)",
			ErrConfig, err,
		)
	case err != nil:
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, configBytesMax))
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return cfg, nil
}

// ParseConfig decodes over the defaults and checks the result.
func ParseConfig(text []byte) (Config, error) {
	cfg := Defaults()
	cfg.Node = "" // of the file, else of this machine
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: %s (falcon-agent --help shows every key)", ErrConfig, joinLines(err))
	}
	cfg.fillNode(os.Hostname)
	return cfg, cfg.validate()
}

// ConfigFolder is where an agent finds its configuration and its certificate where nothing else is said.
const ConfigFolder = "/etc/falcon"

// fillNode takes the machine's own name for the node, up to the first dot, and the files that are
// called so.
func (c *Config) fillNode(hostname func() (string, error)) {
	if c.Node == "" {
		if name, err := hostname(); err == nil {
			c.Node, _, _ = strings.Cut(name, ".")
		}
	}
	fill := func(file *string, name string) {
		if *file == "" && c.Node != "" {
			*file = filepath.Join(ConfigFolder, name)
		}
	}
	fill(&c.Cert, c.Node+".crt")
	fill(&c.Key, c.Node+".key")
	fill(&c.CA, "ca.crt")
}

// joinLines makes the decoder's list of errors one sentence.
func joinLines(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")
	s = strings.TrimPrefix(s, "yaml: ")
	s = strings.ReplaceAll(s, " in type agent.Config", "")
	return strings.Join(strings.Fields(s), " ")
}

func (c Config) validate() error {
	for _, need := range []struct{ key, value string }{
		{"node", c.Node},
		{"engine", c.Engine},
		{"cert", c.Cert},
		{"key", c.Key},
		{"ca", c.CA},
		{"shm_dir", c.ShmDir},
	} {
		if need.value == "" {
			return fmt.Errorf("%w: %s is missing (falcon-agent --help shows every key)", ErrConfig, need.key)
		}
	}
	for _, bound := range []struct {
		key         string
		value       int
		least, most int
	}{
		{"beat_ms", c.BeatMs, 50, 60_000},
		{"telemetry_ms", c.TelemetryMs, 50, 60_000},
		{"drain_ms", c.DrainMs, 1, 1000},
		{"spool_frames", c.SpoolFrames, 16, 1 << 20},
		{"spool_mb", c.SpoolMb, 1, 1024},
		{"nic.down_s", c.NIC.DownS, 1, 3600},
		{"lab.node", c.Lab.Node, 0, 63},
		{"lab.gpus", c.Lab.GPUs, 0, 8},
	} {
		if bound.value < bound.least || bound.value > bound.most {
			return fmt.Errorf("%w: %s is %d, it must be from %d to %d",
				ErrConfig, bound.key, bound.value, bound.least, bound.most)
		}
	}
	if (c.Store.Listen == "") != (c.Store.Upstream == "") {
		return fmt.Errorf("%w: store.listen and store.upstream belong together", ErrConfig)
	}
	if _, err := lookUpUser(c.User); c.User != "" && err != nil {
		return fmt.Errorf("%w: user: %w; give a name or a number that this machine knows", ErrConfig, err)
	}
	if c.RankTable != "" && !filepath.IsAbs(c.RankTable) {
		return fmt.Errorf("%w: rank_table: %q is no absolute path", ErrConfig, c.RankTable)
	}
	if err := peek.CheckPatterns(c.Logs.Files); err != nil {
		return fmt.Errorf("%w: logs.files: %w", ErrConfig, err)
	}
	if err := c.checkLaunch(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c.checkNICs()
}

func (c Config) checkLaunch() error {
	if c.Launch.Ranks() > 0 && c.Job == "" {
		return errors.New("job is missing: a node that starts processes must know which job's")
	}
	return cmp.Or(
		c.Launch.Check(),
		c.Launch.CheckSame("FALCON_JOB", c.Job),
		c.Launch.CheckSame("FALCON_SHM_DIR", c.ShmDir),
	)
}

// nicsMax bounds the map from devices to network ports.
const nicsMax = 256

func (c Config) checkNICs() error {
	if len(c.NICs) > nicsMax {
		return fmt.Errorf("%w: nics has %d devices, at most %d are possible", ErrConfig, len(c.NICs), nicsMax)
	}
	for device, nic := range c.NICs {
		d, err := falcon.ParseDevice(device)
		if err != nil {
			return fmt.Errorf("%w: nics: %w", ErrConfig, err)
		}
		index, ok := strings.CutPrefix(nic, c.Node+".nic")
		if n, err := strconv.Atoi(index); !ok || err != nil || n < 0 || string(d.Node()) != c.Node {
			return fmt.Errorf(
				"%w: nics: %q and %q are not a GPU and a port of node %s, such as %[4]s.g0 and %[4]s.nic0",
				ErrConfig, device, nic, c.Node,
			)
		}
	}
	return nil
}

func milliseconds(n int) time.Duration {
	return time.Duration(n) * time.Millisecond
}
