package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"sync"
	"time"
)

// Certificates are the certificate files of one side and the list of revoked
// ones. Changed files are read again, so that renewing and revoking need no
// restart. A file that can't be used leaves what was read before in force: a
// half-written certificate must not stop the engine, and an unreadable list
// must not let back in whom it shut out.
type Certificates struct {
	files   Files
	revoked string
	log     *slog.Logger

	mu    sync.Mutex
	seen  [3]fs.FileInfo
	conf  *tls.Config
	leaf  *x509.Certificate
	err   error // of the newest look at the three files
	list  revocations
	known fs.FileInfo // of the list that was read
	bad   error       // of the newest look at the list
	last  time.Time   // of the newest look at all of them
}

// OpenCertificates reads the files; revoked may be missing, which revokes
// nothing.
func OpenCertificates(f Files, revoked string, log *slog.Logger) (*Certificates, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certificates{files: f, revoked: revoked, log: log}
	c.Refresh()
	if c.conf == nil {
		return nil, c.err
	}
	if c.bad != nil {
		return nil, c.bad
	}
	return c, nil
}

// ServerTLS is a configuration that follows the files.
func (c *Certificates) ServerTLS() *tls.Config {
	c.mu.Lock()
	first := c.conf.Clone()
	c.mu.Unlock()
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c.look()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.conf, nil
	}
	return first
}

// lookEvery bounds how often callers have the files looked at.
const lookEvery = time.Second

// look refreshes where the newest look is old: thousands of callers may come at
// once.
func (c *Certificates) look() {
	c.mu.Lock()
	old := time.Since(c.last) >= lookEvery
	c.mu.Unlock()
	if old {
		c.Refresh()
	}
}

// Refresh looks whether the files have changed; a few stat calls when not.
func (c *Certificates) Refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	c.refreshPair()
	c.refreshList()
}

func (c *Certificates) refreshPair() {
	var now [3]fs.FileInfo
	fresh := c.conf == nil
	for i, path := range []string{c.files.CA, c.files.Cert, c.files.Key} {
		now[i], _ = os.Stat(path) // a missing one is reported by reading it
		fresh = fresh || now[i] == nil || !same(c.seen[i], now[i])
	}
	if !fresh {
		return
	}
	conf, err := ServerTLS(c.files)
	var leaf *x509.Certificate
	if err == nil {
		leaf, err = x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	}
	if err != nil {
		if c.conf != nil && c.err == nil {
			c.log.Error(
				"the changed certificate can't be used; the one before stays in force",
				slog.Any("err", err),
			)
		}
		c.err = err
		c.seen = [3]fs.FileInfo{}
		return
	}
	if c.conf != nil {
		c.log.Info(
			"certificates were read again",
			slog.String("file", c.files.Cert),
			slog.Time("good_until", leaf.NotAfter),
		)
	}
	c.conf = conf
	c.leaf = leaf
	c.err = nil
	c.seen = now
}

func (c *Certificates) refreshList() {
	if c.revoked == "" {
		return
	}
	info, err := os.Stat(c.revoked)
	if errors.Is(err, fs.ErrNotExist) && c.known == nil {
		return
	}
	if err == nil && same(c.known, info) {
		c.bad = nil
		return
	}
	var list revocations
	if err == nil {
		list, err = readGuarded(c.revoked, info, ErrRevocations, parseRevocations)
	}
	if err != nil {
		if c.bad == nil {
			c.log.Error(
				"the list of revoked certificates can't be used; the one before stays in force",
				slog.Any("err", err),
			)
		}
		c.bad = err
		return
	}
	c.list = list
	c.known = info
	c.bad = nil
}

// Err is what is wrong with the files now; nil when what is in force is what
// they say.
func (c *Certificates) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.err, c.bad)
}

// Leaf is the own certificate in force.
func (c *Certificates) Leaf() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaf
}

// Revoked reports whether a certificate is on the list: by its serial number,
// or by the name in it.
func (c *Certificates) Revoked(id Identity, leaf *x509.Certificate) bool {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.has(id, leaf)
}

// EndsSoon reports whether a certificate should have been renewed: less than
// seven days are left of a long life, or less than three tenths of a short one,
// as its holder renews it with a third left.
func EndsSoon(leaf *x509.Certificate, now time.Time) bool {
	left := leaf.NotAfter.Sub(now)
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return left < min(7*24*time.Hour, life/10*3)
}

// RevokedFile is the name of the list inside a certificate directory.
const RevokedFile = "revoked"

// Errors about lists of revoked certificates.
var (
	ErrRevocations = errors.New("auth: bad list of revoked certificates")
	ErrSerial      = errors.New("auth: bad serial number")
)

// revocations are serial numbers and names.
type revocations map[string]struct{}

func (r revocations) has(id Identity, leaf *x509.Certificate) bool {
	_, name := r[nameKey(id.Name)]
	_, serial := r[serialKey(leaf.SerialNumber)]
	return name || serial
}

func nameKey(s string) string { return "name:" + s }

func serialKey(n *big.Int) string { return "serial:" + n.Text(16) }

// parseRevocations reads one name or serial:HEX a line, blank lines and
// comments.
func parseRevocations(r io.Reader) (revocations, error) {
	out := revocations{}
	err := lines(r, func(n int, line []byte) error {
		key, err := revocationKey(string(line))
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrRevocations, n, err)
		}
		out[key] = struct{}{}
		return nil
	})
	return out, err
}

// lines calls with every line that is neither blank nor a comment.
func lines(r io.Reader, take func(n int, line []byte) error) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRevocations, err)
	}
	for n, line := range bytes.Split(b, []byte("\n")) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := take(n+1, line); err != nil {
			return err
		}
	}
	return nil
}

func revocationKey(s string) (string, error) {
	if hex, ok := strings.CutPrefix(s, "serial:"); ok {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(hex, ":", ""), 16)
		if !ok || n.Sign() < 0 || len(hex) > 128 {
			return "", fmt.Errorf("%w: %q; give it in hexadecimal, such as serial:3f2a9c", ErrSerial, s)
		}
		return serialKey(n), nil
	}
	return nameKey(s), CheckName(s)
}

// Revoke appends a name or serial:HEX to a list, which is made when it is not
// there; it reports whether the list is new in that.
func Revoke(path, what, comment string) (added bool, err error) {
	key, err := revocationKey(what)
	if err != nil {
		return false, err
	}
	if info, err := os.Stat(path); err == nil {
		list, err := readGuarded(path, info, ErrRevocations, parseRevocations)
		if err != nil {
			return false, err
		}
		if _, known := list[key]; known {
			return false, nil
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false, fmt.Errorf("auth: revoke: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s # %s\n", what, comment)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, fmt.Errorf("auth: revoke: %w", err)
	}
	return true, nil
}
