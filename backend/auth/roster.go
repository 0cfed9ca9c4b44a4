package auth

import (
	"bufio"
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// ErrKeys is wrapped by every error about a file of keys.
var ErrKeys = errors.New("auth: bad key file")

// Bounds of a file of keys.
const (
	keysMax      = 10_000
	lineMax      = 16 << 10
	rsaBitsLeast = 2048
)

// The options that a line of authorized_keys may carry.
const (
	optionRole = "falcon-role"
	optionName = "falcon-name"
	optionFrom = "from"
)

// entry is one line of authorized_keys: who comes with the key.
type entry struct {
	key  gossh.PublicKey
	role Role
	name string
	from []netip.Prefix // empty = from anywhere
	line int
}

// allows reports whether the key may be used from an address.
func (e entry) allows(addr netip.Addr) bool {
	return len(e.from) == 0 ||
		slices.ContainsFunc(e.from, func(p netip.Prefix) bool {
			return p.Contains(addr.Unmap())
		})
}

// roster is a parsed authorized_keys file, by the key's wire form. What could not be
// understood lets nobody in, and is no reason to keep others out.
type roster struct {
	entries map[string]entry
	bad     []error // one for each line that is not taken; each wraps ErrKeys
}

// parseRoster reads authorized_keys: blank lines, comments, and lines of
//
//	falcon-role="approver",falcon-name="maria" ssh-ed25519 AAAA… comment
//
// with an optional from="10.0.0.0/8,192.0.2.7". It is strict: any other line is not taken,
// and neither is a key that stands there twice. The error is about the whole file.
func parseRoster(r io.Reader) (roster, error) {
	out := roster{entries: map[string]entry{}}
	twice := map[string]bool{}
	bad, err := eachLine(r, func(n int, line []byte) error {
		e, err := parseEntry(line)
		if err != nil {
			return err
		}
		e.line = n
		id := string(e.key.Marshal())
		if old, ok := out.entries[id]; ok || twice[id] {
			delete(out.entries, id)
			twice[id] = true
			return fmt.Errorf("the key of line %d stands here again: neither is taken; remove one of them",
				old.line)
		}
		out.entries[id] = e
		return nil
	})
	out.bad = bad
	return out, err
}

// authorities are parsed public keys whose certificates are trusted.
type authorities struct {
	keys []gossh.PublicKey
	bad  []error // as a roster's
}

// parseAuthorities reads public keys, one a line and without options. An empty file is an
// error.
func parseAuthorities(r io.Reader) (out authorities, err error) {
	out.bad, err = eachLine(r, func(_ int, line []byte) error {
		key, options, err := parsePublicKey(line)
		if err != nil {
			return err
		}
		if len(options) > 0 {
			return fmt.Errorf("an authority takes no options, got %q", options[0])
		}
		out.keys = append(out.keys, key)
		return nil
	})
	if err == nil && len(out.keys) == 0 {
		err = errors.Join(append([]error{fmt.Errorf("%w: it holds no key", ErrKeys)}, out.bad...)...)
	}
	return out, err
}

// eachLine calls with every line that is neither blank nor a comment. The errors of single
// lines are bad, each with the line's number.
func eachLine(r io.Reader, take func(n int, line []byte) error) (bad []error, err error) {
	in := bufio.NewReaderSize(r, lineMax)
	taken := 0
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: %w", ErrKeys, err)
		}
		line = bytes.TrimSpace(line)
		switch {
		case tooLong:
			bad = append(bad, fmt.Errorf("%w: line %d: a line has at most %d bytes", ErrKeys, n, lineMax))
		case len(line) > 0 && line[0] != '#':
			if taken++; taken > keysMax {
				return nil, fmt.Errorf("%w: more than %d keys", ErrKeys, keysMax)
			}
			if err := take(n, line); err != nil {
				bad = append(bad, fmt.Errorf("%w: line %d: %w", ErrKeys, n, err))
			}
		}
		if err != nil {
			return bad, nil
		}
	}
}

func parsePublicKey(line []byte) (gossh.PublicKey, []string, error) {
	key, _, options, rest, err := gossh.ParseAuthorizedKey(line)
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, nil, errors.New("no public key; a line is OPTIONS ssh-ed25519 AAAA… COMMENT")
	}
	if _, ok := key.(*gossh.Certificate); ok {
		return nil, nil, errors.New(
			"a certificate; list plain keys here and trust its authority with user_ca",
		)
	}
	return key, options, strong(key)
}

// keyDSA is a kind that every implementation has given up.
const keyDSA = "ssh-dss"

// strong refuses keys that are known to be too weak.
func strong(key gossh.PublicKey) error {
	if key.Type() == keyDSA {
		return errors.New("a DSA key; make one with ssh-keygen -t ed25519")
	}
	if c, ok := key.(gossh.CryptoPublicKey); ok {
		pub, ok := c.CryptoPublicKey().(*rsa.PublicKey)
		if ok && pub.N.BitLen() < rsaBitsLeast {
			return fmt.Errorf("an RSA key of %d bits, less than %d; make one with ssh-keygen -t ed25519",
				pub.N.BitLen(), rsaBitsLeast)
		}
	}
	return nil
}

func parseEntry(line []byte) (entry, error) {
	key, options, err := parsePublicKey(line)
	if err != nil {
		return entry{}, err
	}
	e := entry{key: key}
	seen := map[string]bool{}
	for _, o := range options {
		name, value, err := splitOption(o)
		if err != nil {
			return e, err
		}
		if seen[name] {
			return e, fmt.Errorf("option %s stands there twice", name)
		}
		seen[name] = true
		if err := e.set(name, value); err != nil {
			return e, err
		}
	}
	if !seen[optionRole] || !seen[optionName] {
		return e, fmt.Errorf(`it must begin with %s="ROLE",%s="NAME"`, optionRole, optionName)
	}
	return e, nil
}

// splitOption takes name="value" apart. Values never need an escape: names,
// roles and addresses have no quotes.
func splitOption(o string) (name, value string, err error) {
	name, quoted, ok := strings.Cut(o, "=")
	if !ok ||
		len(quoted) < 2 ||
		quoted[0] != '"' ||
		quoted[len(quoted)-1] != '"' ||
		strings.ContainsAny(quoted[1:len(quoted)-1], `"\`) {
		return "", "", fmt.Errorf(`option %q is not of the form %s="…"; only %s, %s and %s are known`,
			o, optionRole, optionRole, optionName, optionFrom)
	}
	return name, quoted[1 : len(quoted)-1], nil
}

func (e *entry) set(name, value string) (err error) {
	switch name {
	case optionRole:
		e.role, err = personRole(value)
	case optionName:
		e.name, err = value, CheckName(value)
	case optionFrom:
		e.from, err = parseFrom(value)
	default:
		return fmt.Errorf("option %q is unknown; there are %s, %s and %s",
			name, optionRole, optionName, optionFrom)
	}
	return err
}

// personRole takes only the roles of people: no key makes anyone an agent.
func personRole(s string) (Role, error) {
	r := Role(s)
	if !r.Covers(RoleViewer) {
		return RoleNone, fmt.Errorf("role %q is none of viewer, operator, approver, admin", s)
	}
	return r, nil
}

func parseFrom(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		if a, err := netip.ParseAddr(part); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("from: %q is no address and no network, such as 10.0.0.0/8", part)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
