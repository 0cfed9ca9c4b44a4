package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrRequest is wrapped where a request for a certificate is refused.
var ErrRequest = errors.New("auth: bad request for a certificate")

// Renew signs a new key for whom leaf proves, with the same role, name and
// length of life. The request proves that its sender holds the key; all else in
// it is ignored.
func (ca *CA) Renew(csr []byte, leaf *x509.Certificate, now time.Time) (certPEM []byte, err error) {
	id, err := fromLeaf(leaf)
	if err != nil {
		return nil, err
	}
	if id.Role != RoleAgent {
		return nil, fmt.Errorf(
			"%w: only agents renew their own; ask for: falcon certs issue --role %s --name %s",
			ErrRequest, id.Role, id.Name,
		)
	}
	q, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := q.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := strongKey(q.PublicKey); err != nil {
		return nil, err
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore) - skew
	return ca.sign(
		Request{
			Role: id.Role,
			Name: id.Name,
			Life: min(max(life, time.Minute), LeafLife),
		},
		q.PublicKey,
		now,
	)
}

// strongKey takes the kinds that this build makes itself.
func strongKey(key any) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("%w: the key must be ECDSA P-256 or P-384, or Ed25519", ErrRequest)
}
