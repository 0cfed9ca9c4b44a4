package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/agent/ship"
)

// checkAgent looks at what an agent of this configuration would use, and starts nothing:
// its folder, which it makes and clears as at a start, its certificate, and what it would
// start ranks with. It writes a line for each thing that is wrong.
func checkAgent(cfg agent.Config, out io.Writer) error {
	var bad []error
	_, err := agent.OpenFolder(cfg, slog.New(slog.NewTextHandler(out, nil)))
	bad = append(bad, err)
	bad = append(bad, ship.Check(ship.Config{
		Address:    cfg.Engine,
		ServerName: cfg.Server,
		CertFile:   cfg.Cert,
		KeyFile:    cfg.Key,
		CAFile:     cfg.CA,
	}))
	if cfg.Launch.Ranks() > 0 {
		bad = append(bad, checkLaunch(cfg)...)
	}
	err = errors.Join(bad...)
	if err == nil {
		_, err = fmt.Fprintln(out, "nothing is wrong with what the agent would use")
	}
	return err
}

func checkLaunch(cfg agent.Config) (bad []error) {
	if _, err := exec.LookPath(cfg.Launch.Command[0]); err != nil {
		bad = append(bad, fmt.Errorf("launch.command: %w: no rank could be started here", err))
	}
	for key, dir := range map[string]string{"dir": cfg.Launch.Dir, "log_dir": cfg.Launch.LogDir} {
		if dir == "" {
			continue
		}
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no folder", dir)
		}
		if err == nil && key == "log_dir" {
			err = unix.Access(dir, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("launch.%s: %s: %w: name a folder that this user may use",
				key, dir, err))
		}
	}
	return bad
}
