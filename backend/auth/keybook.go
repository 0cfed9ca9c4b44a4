package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// ErrRefused is wrapped where a key or certificate lets nobody in.
var ErrRefused = errors.New("auth: refused")

// rolePrefix marks the principal of a certificate that says its role.
const rolePrefix = "role:"

// optionSource bounds where a certificate may be used from.
const optionSource = "source-address"

// fileMax bounds a file of keys.
const fileMax = 8 << 20

// KeyBook knows who may come by SSH: by the lines of an authorized_keys file
// and by certificates of an authority. It reads its files again when they have
// changed. A line that is not understood lets nobody in, nor does a file that can't be
// read, until it is mended: it may have been changed to revoke access.
type KeyBook struct {
	now         func() time.Time
	keys        *watched[roster]      // nil = no keys
	authorities *watched[authorities] // nil = no certificates
}

// OpenKeyBook reads both files, "" leaves one out; Problems has what is wrong with them.
// Now is for the validity of certificates; nil is the real clock.
func OpenKeyBook(keys, authority string, now func() time.Time) *KeyBook {
	if now == nil {
		now = time.Now
	}
	b := &KeyBook{now: now}
	if keys != "" {
		b.keys = &watched[roster]{path: keys, parse: parseRoster}
	}
	if authority != "" {
		b.authorities = &watched[authorities]{path: authority, parse: parseAuthorities}
	}
	return b
}

// Problems are what is wrong with the files now: those that let nobody in, and single lines
// that are not taken. It looks at the files again.
func (b *KeyBook) Problems() (list []error) {
	if b.keys != nil {
		list = problemsOf(b.keys, func(r roster) []error { return r.bad })
	}
	if b.authorities != nil {
		list = append(list, problemsOf(b.authorities, func(a authorities) []error { return a.bad })...)
	}
	return list
}

// problemsOf has the file's name before what is wrong with its lines.
func problemsOf[T any](w *watched[T], bad func(T) []error) (list []error) {
	v, err := w.get()
	if err != nil {
		return []error{err}
	}
	for _, err := range bad(v) {
		list = append(list, fmt.Errorf("%s: %w", w.path, err))
	}
	return list
}

// Identify says who comes with a key from an address. The signature is the
// SSH library's to check.
func (b *KeyBook) Identify(key gossh.PublicKey, addr net.Addr) (Identity, error) {
	from := fmt.Sprintf("ssh %s %s", hostOf(addr), gossh.FingerprintSHA256(key))
	if cert, ok := key.(*gossh.Certificate); ok {
		from = fmt.Sprintf("ssh %s %s certificate %d",
			hostOf(addr), gossh.FingerprintSHA256(cert.Key), cert.Serial)
		id, err := b.certified(cert, addr)
		id.From = from
		return id, err
	}
	if b.keys == nil {
		return Identity{}, fmt.Errorf("%w: only certificates are taken", ErrRefused)
	}
	list, err := b.keys.get()
	if err != nil {
		return Identity{}, err
	}
	e, ok := list.entries[string(key.Marshal())]
	if !ok {
		return Identity{}, fmt.Errorf("%w: no line of %s has the key %s",
			ErrRefused, b.keys.path, gossh.FingerprintSHA256(key))
	}
	if !e.allows(addressOf(addr)) {
		return Identity{}, fmt.Errorf("%w: the key of %s may not be used from %s",
			ErrRefused, e.name, hostOf(addr))
	}
	return Identity{Role: e.role, Name: e.name, From: from}, nil
}

// certified reads role and name from a certificate: one principal role:ROLE,
// and the key id.
func (b *KeyBook) certified(cert *gossh.Certificate, addr net.Addr) (Identity, error) {
	if b.authorities == nil {
		return Identity{}, fmt.Errorf("%w: no authority for certificates is set", ErrRefused)
	}
	trusted, err := b.authorities.get()
	if err != nil {
		return Identity{}, err
	}
	if cert.CertType != gossh.UserCert {
		return Identity{}, fmt.Errorf("%w: a host's certificate, not a user's", ErrRefused)
	}
	if !slices.ContainsFunc(trusted.keys, func(k gossh.PublicKey) bool {
		return bytes.Equal(k.Marshal(), cert.SignatureKey.Marshal())
	}) {
		return Identity{}, fmt.Errorf("%w: the certificate is signed by another authority", ErrRefused)
	}
	principal, err := rolePrincipal(cert)
	if err != nil {
		return Identity{}, err
	}
	if err := strong(cert.Key); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	checker := gossh.CertChecker{Clock: b.now, SupportedCriticalOptions: []string{optionSource}}
	if err := errors.Join(checker.CheckCert(principal, cert), sourceAllowed(cert, addr)); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	role, err := personRole(strings.TrimPrefix(principal, rolePrefix))
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := CheckName(cert.KeyId); err != nil {
		return Identity{}, fmt.Errorf("%w: the certificate's key id is the name: %w", ErrRefused, err)
	}
	return Identity{Role: role, Name: cert.KeyId}, nil
}

// rolePrincipal finds the one that names a role; two would leave the choice to
// chance, and a certificate without principals would hold for all.
func rolePrincipal(cert *gossh.Certificate) (string, error) {
	var found []string
	for _, p := range cert.ValidPrincipals {
		if strings.HasPrefix(p, rolePrefix) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%w: the certificate has %d principals of the form role:ROLE, not one",
			ErrRefused, len(found))
	}
	return found[0], nil
}

// sourceAllowed checks the certificate's own bound on where it may be used
// from; the checker leaves that to the server.
func sourceAllowed(cert *gossh.Certificate, addr net.Addr) error {
	list, ok := cert.CriticalOptions[optionSource]
	if !ok {
		return nil
	}
	from, err := parseFrom(list)
	if err != nil {
		return err
	}
	if !(entry{from: from}).allows(addressOf(addr)) {
		return fmt.Errorf("the certificate may not be used from %s", hostOf(addr))
	}
	return nil
}

func addressOf(a net.Addr) netip.Addr {
	ip, err := netip.ParseAddr(hostOf(a))
	if err != nil {
		return netip.Addr{}
	}
	return ip.WithZone("").Unmap()
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// watched is a parsed file that is read again when it has changed.
type watched[T any] struct {
	path  string
	parse func(io.Reader) (T, error)

	mu    sync.Mutex
	state fs.FileInfo // of what was read last
	value T
	err   error
}

// get is the file as it stands now.
func (w *watched[T]) get() (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var none T
	info, err := os.Stat(w.path)
	if err != nil {
		w.state = nil
		return none, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if !same(w.state, info) {
		w.value, w.err = readGuarded(w.path, info, ErrKeys, w.parse)
		w.state = info
	}
	return w.value, w.err
}

// readGuarded parses a file that decides who comes in, and that others may
// therefore not write. Errors wrap bad or the parser's.
func readGuarded[T any](
	path string,
	info fs.FileInfo,
	bad error,
	parse func(io.Reader) (T, error),
) (T, error) {
	var none T
	if info.Mode().Perm()&0o022 != 0 {
		return none, fmt.Errorf("%w: others may write %s, and so let themselves in; chmod go-w it", bad, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("%w: %w", bad, err)
	}
	defer f.Close()
	v, err := parse(io.LimitReader(f, fileMax))
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// same reports whether a file has not been changed or replaced. Its time of writing
// can be set by anybody who may write it; the time of its change can't.
func same(a, b fs.FileInfo) bool {
	return a != nil &&
		os.SameFile(a, b) &&
		a.Size() == b.Size() &&
		a.ModTime().Equal(b.ModTime()) &&
		a.Mode() == b.Mode() &&
		changed(a) == changed(b)
}

func changed(info fs.FileInfo) syscall.Timespec {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim
	}
	return syscall.Timespec{}
}
