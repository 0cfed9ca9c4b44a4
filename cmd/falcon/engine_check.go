package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/pressure"
	"github.com/failslow/falcon/tui/sshserver"
)

// findings are what a look at a configuration has come to.
type findings struct {
	refused []string // the engine would not start
	off     []string // it would start without
}

func (f *findings) refuse(err error) {
	if err != nil {
		f.refused = append(f.refused, sentence(err))
	}
}

func (f *findings) miss(err error) {
	if err != nil {
		f.off = append(f.off, sentence(err))
	}
}

// checkEngine looks at what an engine of this configuration would use: folders, keys,
// certificates, lists, addresses. It makes and changes nothing.
func checkEngine(cfg engineConfig) (f findings) {
	if _, err := os.Stat(cfg.StateDir); err == nil || cfg.StateDir == noStateDir {
		f.refuse(claimStateDir(cfg.StateDir))
	}
	_, err := pressure.Choose(cfg.MemoryLimit)
	f.refuse(err)
	runs := isAnswered("unix", cfg.Socket)
	if cfg.Listen != "none" {
		_, err := auth.OpenCertificates(
			cfg.Certs,
			cfg.Revoked,
			slog.New(slog.DiscardHandler),
		)
		f.refuse(err)
		f.refuse(checkAddress("listen", cfg.Listen, runs))
		if cfg.Renew {
			_, err := openAuthority(cfg.Certs.CA)
			f.miss(err)
		}
	}
	if cfg.Store.Listen != "" {
		f.refuse(checkAddress("store.listen", cfg.Store.Listen, runs))
	}
	if cfg.SSH.Listen != "" {
		f.lookAtSSH(cfg.SSH, runs)
	}
	if dir := cfg.Journal.BackupDir; dir != "" {
		f.miss(writable(dir))
	}
	return f
}

func (f *findings) lookAtSSH(c sshConfig, runs bool) {
	if err := c.validate(); err != nil {
		f.miss(err)
		return
	}
	f.miss(sshserver.CheckHostKey(c.HostKey))
	for _, err := range auth.OpenKeyBook(c.AuthorizedKeys, c.UserCA, nil).Problems() {
		f.miss(fmt.Errorf("ssh: %w", err))
	}
	f.miss(checkAddress("ssh.listen", c.Listen, runs))
}

// isAnswered reports whether somebody listens there.
func isAnswered(network, address string) bool {
	c, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// checkAddress returns why an address can't be had. An engine that runs has it for good reason.
func checkAddress(key, address string, runs bool) error {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l.Close()
	case runs && errors.Is(err, syscall.EADDRINUSE):
		return nil
	}
	return fmt.Errorf("%s: %w: end what uses it, or give another address of this machine", key, err)
}

// writable returns why no file can be made in a folder; one that is missing is made by the engine.
func writable(dir string) error {
	err := syscall.Access(dir, 2|1)
	if errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(dir)
		err = syscall.Access(dir, 2|1)
	}
	if err != nil {
		return fmt.Errorf("journal.backup_dir: %s: %w: name a folder that this user may write", dir, err)
	}
	return nil
}

// writeFindings returns an error where something was found, for the exit code.
func writeFindings(out io.Writer, f findings) error {
	for _, text := range f.refused {
		fmt.Fprintln(out, "refused:", text)
	}
	for _, text := range f.off {
		fmt.Fprintln(out, "off:", text)
	}
	switch {
	case len(f.refused) > 0:
		return fmt.Errorf("the engine would not start: %d to put right, and %d that it would do without",
			len(f.refused), len(f.off))
	case len(f.off) > 0:
		return fmt.Errorf("the engine would start without %d of its parts", len(f.off))
	}
	_, err := fmt.Fprintln(out,
		"nothing is wrong with what the engine would use; the journal is looked at by: falcon journal verify")
	return err
}
