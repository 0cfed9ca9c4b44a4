package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Life of certificates. The authority's is long, as renewing it touches every
// node; a leaf's bounds how long a stolen key is good.
const (
	CALife   = 10 * 365 * 24 * time.Hour
	LeafLife = 365 * 24 * time.Hour
	// skew is how far a node's clock may be behind the authority's.
	skew = 10 * time.Minute
)

// File names inside a certificate directory.
const (
	CACertFile = "ca.crt"
	CAKeyFile  = "ca.key"
	CertSuffix = ".crt"
	KeySuffix  = ".key"
)

// CA is the installation's certificate authority (ECDSA P-256).
type CA struct {
	cert *x509.Certificate
	der  []byte
	key  crypto.Signer
}

// Request is what a certificate is to say. Hosts are DNS names and addresses
// under which a server is reached; they are ignored for other roles.
type Request struct {
	Role  Role
	Name  string
	Hosts []string
	Life  time.Duration // 0 = LeafLife
}

// NewCA makes an authority; it is kept in memory until Save.
func NewCA(name string, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("auth: make the authority's key: %w", err)
	}
	t, err := template(name, now, CALife)
	if err != nil {
		return nil, err
	}
	t.IsCA = true
	t.BasicConstraintsValid = true
	t.MaxPathLenZero = true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("auth: make the authority: %w", err)
	}
	return newCA(der, key)
}

func newCA(der []byte, key crypto.Signer) (*CA, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCert, err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("%w: %s is no authority", ErrCert, cert.Subject.CommonName)
	}
	return &CA{cert: cert, der: der, key: key}, nil
}

func template(name string, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("auth: draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"Falcon"}},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(life),
	}, nil
}

// Issue makes a key and its certificate, both PEM.
func (ca *CA) Issue(q Request, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("auth: make a key: %w", err)
	}
	if certPEM, err = ca.sign(q, key.Public(), now); err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return certPEM, keyPEM, err
}

// sign makes the certificate of a key, PEM.
func (ca *CA) sign(q Request, key crypto.PublicKey, now time.Time) ([]byte, error) {
	t, err := q.template(now)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("auth: sign for %s: %w", q.Name, err)
	}
	return encodeCert(der), nil
}

func (q Request) template(now time.Time) (*x509.Certificate, error) {
	if _, err := ParseRole(string(q.Role)); err != nil {
		return nil, err
	}
	if err := CheckName(q.Name); err != nil {
		return nil, err
	}
	life := q.Life
	if life <= 0 {
		life = LeafLife
	}
	t, err := template(q.Name, now, life)
	if err != nil {
		return nil, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	t.URIs = []*url.URL{uri(roleHost, string(q.Role)), uri(nameHost, q.Name)}
	if q.Role == RoleServer {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.DNSNames, t.IPAddresses = splitHosts(q.Hosts)
	}
	return t, nil
}

func uri(host, path string) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: host, Path: "/" + path}
}

func splitHosts(hosts []string) (names []string, addrs []net.IP) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			addrs = append(addrs, ip)
		} else {
			names = append(names, h)
		}
	}
	return names, addrs
}

// CertPEM is the authority's certificate, to be handed to everyone.
func (ca *CA) CertPEM() []byte { return encodeCert(ca.der) }

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("auth: encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Save writes the authority into dir (0700, files 0600). It never overwrites
// one that is there: every certificate in use would be void.
func (ca *CA) Save(dir string) error {
	key, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	return writePair(dir, "ca", ca.CertPEM(), key)
}

// IssueTo issues a certificate into dir as NAME.crt and NAME.key.
func (ca *CA) IssueTo(dir string, q Request, now time.Time) error {
	cert, key, err := ca.Issue(q, now)
	if err != nil {
		return err
	}
	return writePair(dir, q.Name, cert, key)
}

func writePair(dir, name string, cert, key []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("auth: make %s: %w", dir, err)
	}
	if err := writeNew(filepath.Join(dir, name+KeySuffix), key); err != nil {
		return err
	}
	return writeNew(filepath.Join(dir, name+CertSuffix), cert)
}

func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("auth: %s is there already: move it away, or give another name or folder", path)
	}
	if err != nil {
		return fmt.Errorf("auth: write %s: %w", path, err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("auth: write %s: %w", path, err)
	}
	return nil
}

// OpenCA reads the authority that Save wrote.
func OpenCA(dir string) (*CA, error) {
	der, err := readPEM(filepath.Join(dir, CACertFile), "CERTIFICATE")
	if err != nil {
		return nil, fmt.Errorf("%w; make one with: falcon certs init --dir %s", err, dir)
	}
	raw, err := readPEM(filepath.Join(dir, CAKeyFile), "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCert, filepath.Join(dir, CAKeyFile), err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %s holds no signing key", ErrCert, filepath.Join(dir, CAKeyFile))
	}
	return newCA(der, signer)
}

func readPEM(path, kind string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%w: %s holds no PEM block %q", ErrCert, path, kind)
	}
	return block.Bytes, nil
}
