package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
)

// journalConfig says how much of the past the journal keeps, and where copies
// of it go while the engine runs. Zero values are the defaults.
type journalConfig struct {
	// of records since the newest snapshot, before the next takes their place
	SnapshotMB int `yaml:"snapshot_mb"`
	// how long decisions, policies, fences and audit lines stay
	AuditDays    int           `yaml:"audit_days"`
	AuditRecords int           `yaml:"audit_records"` // and how many of them at most
	BackupDir    string        `yaml:"backup_dir"`    // "" = no copies
	BackupEvery  time.Duration `yaml:"backup_every"`
	Backups      int           `yaml:"backups"` // copies that stay
}

// Defaults and bounds of the settings.
const (
	backupEvery      = time.Hour
	backupLeast      = 10 * time.Second
	backupsKept      = 24
	snapshotMost     = 4096
	auditDaysMost    = 36_500
	auditRecordsMost = 10_000_000
	backupPrefix     = "journal-"
	backupSuffix     = ".db"
)

func (c journalConfig) validate() error {
	for _, v := range []struct {
		key         string
		value, most int
	}{
		{"snapshot_mb", c.SnapshotMB, snapshotMost},
		{"audit_days", c.AuditDays, auditDaysMost},
		{"audit_records", c.AuditRecords, auditRecordsMost},
		{"backups", c.Backups, 10_000},
	} {
		if v.value < 0 || v.value > v.most {
			return fmt.Errorf("%w: journal.%s is %d; give 1 to %d, 0 = the default",
				errUsage, v.key, v.value, v.most)
		}
	}
	if c.BackupEvery != 0 && c.BackupEvery < backupLeast {
		return fmt.Errorf("%w: journal.backup_every is %s; give %s or more, 0s = the default",
			errUsage, c.BackupEvery, backupLeast)
	}
	return nil
}

func (c journalConfig) retention() engine.Retention {
	return engine.Retention{
		SnapshotBytes: int64(c.SnapshotMB) << 20,
		AuditAge:      time.Duration(c.AuditDays) * 24 * time.Hour,
		AuditRecords:  c.AuditRecords,
	}
}

// keepCopies writes a copy now and then until ctx ends; note takes what came of each.
func (c journalConfig) keepCopies(ctx context.Context, j *journal.Journal, note func(error)) error {
	every := c.BackupEvery
	if every == 0 {
		every = backupEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for c.BackupDir != "" {
		note(c.copyOnce(j, time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	<-ctx.Done()
	return nil
}

// copyOnce writes one copy and removes those that are too many. Its name says
// when, so that names ascend.
func (c journalConfig) copyOnce(j *journal.Journal, now time.Time) error {
	if err := os.MkdirAll(c.BackupDir, 0o700); err != nil {
		return fmt.Errorf("journal.backup_dir: %w", err)
	}
	name := backupPrefix + now.UTC().Format("20060102T150405Z") + backupSuffix
	if err := j.Backup(filepath.Join(c.BackupDir, name)); err != nil {
		return err
	}
	return c.dropCopies()
}

// dropCopies keeps the newest; other files of the folder are left alone.
func (c journalConfig) dropCopies() error {
	most := c.Backups
	if most == 0 {
		most = backupsKept
	}
	list, err := os.ReadDir(c.BackupDir)
	if err != nil {
		return fmt.Errorf("journal.backup_dir: %w", err)
	}
	var names []string
	for _, f := range list {
		stamp, is := strings.CutPrefix(strings.TrimSuffix(f.Name(), backupSuffix), backupPrefix)
		if _, err := time.Parse("20060102T150405Z", stamp); is && err == nil {
			names = append(names, f.Name())
		}
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names[:max(0, len(names)-most)] {
		errs = append(errs, os.Remove(filepath.Join(c.BackupDir, name)))
	}
	return errors.Join(errs...)
}
