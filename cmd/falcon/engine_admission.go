package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/pressure"
	"github.com/failslow/falcon/backend/rpc"
)

func (c *engineConfig) checkAdmission() error {
	if _, err := pressure.ParseLimit(c.MemoryLimit); err != nil {
		return fmt.Errorf("%w: memory_limit: %w", errUsage, err)
	}
	if c.StreamMost < 0 || c.StreamMost > 0 && c.StreamMost < time.Minute {
		return fmt.Errorf("%w: stream_most is %s; give at least 1m", errUsage, c.StreamMost)
	}
	return nil
}

// openDoors takes the addresses, with all that admission needs.
func openDoors(e *engine.Engine, cfg engineConfig, log *slog.Logger) (*rpc.Server, *care, error) {
	limit, err := pressure.Choose(cfg.MemoryLimit)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: memory_limit: %w", errUsage, err)
	}
	k := &care{
		engine:  e,
		log:     log,
		limit:   limit,
		every:   cfg.lookEvery,
		alarmed: map[string]bool{},
		levels:  make(chan string, 16),
	}
	rc := rpc.Config{
		Engine:  e,
		Socket:  cfg.Socket,
		Log:     log,
		Load:    k,
		Shed:    k.framesToShed,
		Budgets: fleet.Limits{Waiting: limit / 4, Log: log},
	}
	rc.Limits.StreamAge = cfg.StreamMost
	if cfg.Listen != "none" {
		if err := k.openCertificates(cfg, &rc); err != nil {
			return nil, nil, err
		}
	}
	k.gauge = pressure.Watch(limit, k.levelChanged)
	if k.server, err = rpc.Listen(rc); err != nil {
		k.stopWatching()
		return nil, nil, err
	}
	return k.server, k, nil
}

func (k *care) openCertificates(cfg engineConfig, rc *rpc.Config) (err error) {
	if _, err := os.Stat(cfg.Certs.Cert); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no server certificate %s: make one with falcon certs init, or set listen: none",
			cfg.Certs.Cert)
	}
	if k.certs, err = auth.OpenCertificates(cfg.Certs, cfg.Revoked, k.log); err != nil {
		return err
	}
	rc.Address, rc.TLS, rc.Check = cfg.Listen, k.certs.ServerTLS(), k.admitsGuest
	if cfg.Renew {
		rc.Renew = authoritySigner(cfg.Certs.CA)
		k.parts = append(k.parts, renewal{cfg.Certs.CA})
	}
	return nil
}

// openAuthority reads the authority's key, which lies beside its certificate.
func openAuthority(caFile string) (*auth.CA, error) {
	ca, err := auth.OpenCA(filepath.Dir(caFile))
	if err != nil {
		return nil, fmt.Errorf("renew: %w; without the authority's key on this machine set renew: false", err)
	}
	return ca, nil
}

// authoritySigner signs agents' requests with the authority's key, which is read each time:
// that it is missing costs renewals alone, until it is there.
func authoritySigner(caFile string) rpc.Signer {
	return func(csr []byte, leaf *x509.Certificate) (cert, roots []byte, err error) {
		ca, err := openAuthority(caFile)
		if err != nil {
			return nil, nil, err
		}
		if cert, err = ca.Renew(csr, leaf, time.Now()); err != nil {
			return nil, nil, err
		}
		roots, err = os.ReadFile(caFile)
		return cert, roots, err
	}
}

// care looks after what the engine's doors depend on: memory and certificates.
type care struct {
	engine *engine.Engine
	server *rpc.Server
	certs  *auth.Certificates // nil = local only
	gauge  *pressure.Gauge
	log    *slog.Logger
	limit  int64

	levels   chan string     // what the gauge has to say
	every    time.Duration   // between two looks; 0 = careEvery
	parts    []part          // what the engine can do without
	alarmed  map[string]bool // what was said of certificates and parts; of run's goroutine
	impaired map[string]bool // what was wrong with the parts at the last look
}

// NoWatches and NoSnapshots are what the doors ask before a call.
func (k *care) NoWatches() bool {
	return k.gauge.Level() >= pressure.NoWatches
}

// NoSnapshots is for viewers alone: who may act is heard longer.
func (k *care) NoSnapshots() bool {
	return k.gauge.Level() >= pressure.NoViewers
}

func (k *care) framesToShed() fleet.Shed {
	switch l := k.gauge.Level(); {
	case l >= pressure.NoSamples:
		return fleet.ShedSamples
	case l >= pressure.NoTelemetry:
		return fleet.ShedTelemetry
	case l >= pressure.NoProfiles:
		return fleet.ShedProfiles
	}
	return fleet.ShedNothing
}

func (k *care) levelChanged(was, now pressure.Level, used int64) {
	text := fmt.Sprintf("memory: %d of %d MiB are in use, and there is room again for %s",
		used>>20, k.limit>>20, was)
	if now > was {
		text = fmt.Sprintf(
			"memory: %d of %d MiB are in use: left out from now on are %s; raise memory_limit or end what asks for much",
			used>>20, k.limit>>20, now,
		)
	}
	k.log.Warn("memory", slog.String("alarm", text))
	select {
	case k.levels <- text:
	default: // the log has it
	}
}

func (k *care) admitsGuest(g *door.Peer) error {
	if k.certs.Revoked(g.Identity, g.Leaf) {
		return fmt.Errorf("%w: %s (serial %x)", door.ErrRevoked, g.Identity.Name, g.Leaf.SerialNumber)
	}
	return nil
}

// careEvery is how often certificates and parts are looked at.
const careEvery = 15 * time.Second

func (k *care) watchLimits(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(k.every, careEvery))
	defer tick.Stop()
	defer k.stopWatching()
	for {
		k.lookAtCertificates(ctx, time.Now())
		k.checkParts(ctx)
		select {
		case <-ctx.Done():
			return
		case text := <-k.levels:
			k.raiseAlarm(ctx, text)
		case <-tick.C:
		}
	}
}

func (k *care) stopWatching() {
	if k.gauge != nil {
		k.gauge.Close()
	}
}

func (k *care) raiseAlarm(ctx context.Context, text string) {
	k.tell(ctx, 2, text)
}

func (k *care) tell(ctx context.Context, severity int32, text string) {
	err := k.engine.Alarm(ctx, severity, text)
	if err != nil && ctx.Err() == nil {
		k.log.Error(
			"an alarm could not be written",
			slog.String("alarm", text),
			slog.Any("err", err),
		)
	}
}

// lookAtCertificates says once what is wrong with each.
func (k *care) lookAtCertificates(ctx context.Context, now time.Time) {
	if k.certs == nil {
		return
	}
	k.certs.Refresh()
	if err := k.certs.Err(); err != nil {
		k.alarmOnce(ctx, fmt.Sprintf(
			"the certificate files can't be used, and what was read before stays in force: %v",
			err,
		))
	}
	if leaf := k.certs.Leaf(); auth.EndsSoon(leaf, now) {
		k.alarmOnce(ctx, fmt.Sprintf(
			"the engine's own certificate ends at %s: put another in its place, it is read without a restart",
			certificateEndText(leaf),
		))
	}
	k.lookAtGuests(ctx, now)
}

func (k *care) alarmOnce(ctx context.Context, text string) {
	if !k.alarmed[text] {
		k.alarmed[text] = true
		k.raiseAlarm(ctx, text)
	}
}

// Bounds of what is said of callers' certificates.
const (
	namedMost   = 8       // in one line
	alarmedMost = 1 << 16 // remembered
)

// lookAtGuests says in one line whose certificates have come near their ends.
func (k *care) lookAtGuests(ctx context.Context, now time.Time) {
	if len(k.alarmed) > alarmedMost {
		clear(k.alarmed)
	}
	var names []string
	for _, g := range k.server.Peers() {
		key := g.Leaf.SerialNumber.Text(16)
		if k.alarmed[key] || !auth.EndsSoon(g.Leaf, now) {
			continue
		}
		k.alarmed[key] = true
		names = append(names, fmt.Sprintf("%s %s at %s",
			g.Identity.Role, g.Identity.Name, certificateEndText(g.Leaf)))
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - namedMost; n > 0 {
		names = names[:namedMost]
		more = fmt.Sprintf(", and %d more", n)
	}
	k.raiseAlarm(ctx, fmt.Sprintf("certificates end soon: %s%s; renew them", strings.Join(names, ", "), more))
}

func certificateEndText(leaf *x509.Certificate) string {
	return leaf.NotAfter.UTC().Format("2006-01-02 15:04 MST")
}
