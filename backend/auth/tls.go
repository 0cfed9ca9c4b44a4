package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/failslow/falcon/backend/clock"
)

// Files are the three that one side of a mutual TLS connection needs.
type Files struct {
	CA   string `yaml:"ca" json:"ca"`
	Cert string `yaml:"cert" json:"cert"`
	Key  string `yaml:"key" json:"key"`
}

// FilesIn names the files that CA.Save and CA.IssueTo wrote into dir.
func FilesIn(dir, name string) Files {
	return Files{
		CA:   filepath.Join(dir, CACertFile),
		Cert: filepath.Join(dir, name+CertSuffix),
		Key:  filepath.Join(dir, name+KeySuffix),
	}
}

// ServerTLS demands a certificate of our authority from every caller.
func ServerTLS(f Files) (*tls.Config, error) {
	cert, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Time:         clock.ValidityTime(cert.Leaf),
	}, nil
}

// ClientTLS proves the client and checks that the other side is a server of
// the same authority. ServerName is left to the dialer.
func ClientTLS(f Files) (*tls.Config, error) {
	cert, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		Time:         clock.ValidityTime(cert.Leaf),
	}, nil
}

func (f Files) load() (tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return cert, nil, fmt.Errorf("%w: %s: %s%s", ErrCert, f.Cert, cause(err), hint(err))
	}
	b, err := os.ReadFile(f.CA)
	if err != nil {
		return cert, nil, fmt.Errorf("%w: %s%s", ErrCert, cause(err), hint(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return cert, nil, fmt.Errorf("%w: %s holds no certificate", ErrCert, f.CA)
	}
	return cert, pool, nil
}

// cause drops the "tls: " prefix of the library's sentence.
func cause(err error) string {
	return strings.TrimPrefix(err.Error(), "tls: ")
}

func hint(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "; make it with: falcon certs issue"
	}
	return ""
}
