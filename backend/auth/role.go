package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Errors of this package.
var (
	ErrRole = errors.New("auth: bad role")
	ErrName = errors.New("auth: bad name")
	ErrCert = errors.New("auth: bad certificate")
)

// Role is what a caller may do. People's roles are ordered: each may do what
// the lower ones may. Agent and Server stand apart.
type Role string

// The roles.
const (
	RoleNone     Role = ""
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleApprover Role = "approver"
	RoleAdmin    Role = "admin"
	RoleAgent    Role = "agent"
	RoleServer   Role = "server"
)

// Roles lists all roles that a certificate can carry.
var Roles = []Role{RoleViewer, RoleOperator, RoleApprover, RoleAdmin, RoleAgent, RoleServer}

// ParseRole checks a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles, r) {
		return r, nil
	}
	return RoleNone, fmt.Errorf("%w: %q is none of viewer, operator, approver, admin, agent, server",
		ErrRole, s)
}

// height orders the roles of people; 0 for the others.
func (r Role) height() int {
	return 1 + slices.Index([]Role{RoleViewer, RoleOperator, RoleApprover, RoleAdmin}, r)
}

// Covers reports whether a caller with role r may do what needs role need.
func (r Role) Covers(need Role) bool {
	if need.height() == 0 || r.height() == 0 {
		return need != RoleNone && r == need
	}
	return r.height() >= need.height()
}

// Identity is a caller, as proven.
type Identity struct {
	Role Role
	Name string // node of an agent, else a person's name
	From string // where the call comes from, for the record
}

const (
	uriScheme = "falcon"
	roleHost  = "role"
	nameHost  = "name"
)

// FromChains reads the identity from chains that TLS has verified. Role and
// name stand in the leaf's URI names: falcon://role/agent, falcon://name/n1.
func FromChains(chains [][]*x509.Certificate) (Identity, error) {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return Identity{}, fmt.Errorf("%w: no verified certificate", ErrCert)
	}
	return fromLeaf(chains[0][0])
}

func fromLeaf(leaf *x509.Certificate) (Identity, error) {
	role, err := single(leaf.URIs, roleHost)
	if err != nil {
		return Identity{}, err
	}
	name, err := single(leaf.URIs, nameHost)
	if err != nil {
		return Identity{}, err
	}
	r, err := ParseRole(role)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Role: r, Name: name}, CheckName(name)
}

// single finds the one value of a kind; two would leave the choice to chance.
func single(uris []*url.URL, host string) (string, error) {
	var found []string
	for _, u := range uris {
		if u.Scheme == uriScheme && u.Host == host {
			found = append(found, strings.TrimPrefix(u.Path, "/"))
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%w: it names %d values of falcon://%s, not one", ErrCert, len(found), host)
	}
	return found[0], nil
}

// NameBytesMax bounds the name of a node or a person.
const NameBytesMax = 64

// CheckName allows letters, digits, dot, underscore, at-sign and dash: names
// become file names and stand in logs.
func CheckName(s string) error {
	ok := s != "" && len(s) <= NameBytesMax && s[0] != '.' && s[0] != '-'
	for _, c := range s {
		ok = ok &&
			(c >= 'a' && c <= 'z' ||
				c >= 'A' && c <= 'Z' ||
				c >= '0' && c <= '9' ||
				strings.ContainsRune("._@-", c))
	}
	if !ok {
		return fmt.Errorf(
			"%w: %q; use 1 to %d letters, digits, dots, dashes, underscores or at-signs, beginning with a letter or digit",
			ErrName, s, NameBytesMax,
		)
	}
	return nil
}
