package ship

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
)

// nextSuffix marks files that are about to take the place of others.
const nextSuffix = ".next"

// renewalTime is when a certificate is renewed: after two thirds of its life, less
// up to a twentieth, so that a fleet does not ask as one.
func renewalTime(leaf *x509.Certificate) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(life*2/3 - time.Duration(mathrand.Float64()*float64(life/20)))
}

// Bounds of asking again after a failure.
const (
	renewAgainLeast = time.Second
	renewAgainMost  = time.Hour
)

// keepCertificate renews the certificate of a stream's connection in its time,
// until the stream ends. The next connection is made with the new one.
func (s *Shipper) keepCertificate(ctx context.Context, conn *grpc.ClientConn, leaf *x509.Certificate) {
	at := renewalTime(leaf)
	again := min(max(leaf.NotAfter.Sub(leaf.NotBefore)/50, renewAgainLeast), renewAgainMost)
	for sleepContext(ctx, max(at.Sub(clock.Now()), 0)) {
		got, err := s.renewCertificate(ctx, conn)
		switch {
		case err == nil:
			s.log.Info(
				"the certificate was renewed",
				slog.String("file", s.cfg.CertFile),
				slog.Time("good_until", got.NotAfter),
			)
			if at = renewalTime(got); at.Sub(clock.Now()) < again {
				// a life so short that its tolerance of skewed clocks is most of it
				at = clock.Now().Add(withJitter(again))
			}
			continue
		case status.Code(err) == codes.Unimplemented:
			return // it is renewed by hand; the engine says when it ends soon
		case ctx.Err() != nil:
			return
		}
		s.log.Warn(
			"the certificate could not be renewed",
			slog.Any("err", err),
			slog.Duration("again_in", again),
		)
		at = clock.Now().Add(withJitter(again))
	}
}

// renewCertificate asks for a certificate of a new key and puts both in their places.
func (s *Shipper) renewCertificate(ctx context.Context, conn *grpc.ClientConn) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, WelcomeMax)
	defer cancel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("ship: make a key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("ship: make a request: %w", err)
	}
	r, err := falconv1.NewFleetClient(conn).Renew(ctx, &falconv1.RenewRequest{Csr: csr})
	if err != nil {
		return nil, err // its code is looked at
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("ship: encode a key: %w", err)
	}
	return s.installPair(r, pem.EncodeToMemory(&pem.Block{
		Type:  "PRIVATE KEY",
		Bytes: der,
	}))
}

// installPair checks what came and writes it: the new pair first beside the old
// one, whole, then in its place. An agent that is killed in between finds a pair
// that fits together again, see finish.
func (s *Shipper) installPair(r *falconv1.RenewReply, key []byte) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(r.GetCertificate(), key)
	if err != nil {
		return nil, fmt.Errorf("%w: the renewed one: %w", ErrCredentials, err)
	}
	if err := s.checkCertificate(pair.Leaf, r.GetRoots()); err != nil {
		return nil, err
	}
	cfg := s.cfg
	err = errors.Join(writeNext(cfg.CertFile, r.GetCertificate()), writeNext(cfg.KeyFile, key))
	if err == nil {
		err = errors.Join(putInPlace(cfg.KeyFile), putInPlace(cfg.CertFile))
	}
	if err == nil && len(r.GetRoots()) > 0 {
		err = s.installRoots(r.GetRoots())
	}
	return pair.Leaf, err
}

// checkCertificate refuses a certificate for another name than the present one's, and one
// that the roots do not vouch for.
func (s *Shipper) checkCertificate(leaf *x509.Certificate, roots []byte) error {
	old, err := tls.LoadX509KeyPair(s.cfg.CertFile, s.cfg.KeyFile)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	if leaf.Subject.CommonName != old.Leaf.Subject.CommonName {
		return fmt.Errorf("%w: the renewed one is of %q", ErrCredentials, leaf.Subject.CommonName)
	}
	if len(roots) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return fmt.Errorf("%w: no authority came with the renewed one", ErrCredentials)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:     pool,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("%w: the renewed one: %w", ErrCredentials, err)
	}
	return nil
}

func (s *Shipper) installRoots(roots []byte) error {
	old, err := os.ReadFile(s.cfg.CAFile)
	if err == nil && bytes.Equal(old, roots) {
		return nil
	}
	return errors.Join(writeNext(s.cfg.CAFile, roots), putInPlace(s.cfg.CAFile))
}

// writeNext writes a file beside another, durably.
func writeNext(path string, b []byte) error {
	f, err := os.OpenFile(
		path+nextSuffix,
		os.O_WRONLY|os.O_CREATE|os.O_TRUNC,
		0o600,
	)
	if err != nil {
		return fmt.Errorf(
			"ship: %w; let the agent write its certificate's folder, or renew the certificate by hand",
			err,
		)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
}

// putInPlace puts a written file in its place.
func putInPlace(path string) error {
	if err := os.Rename(path+nextSuffix, path); err != nil {
		return fmt.Errorf("ship: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("ship: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// loadKeyPair reads certificate and key, and finishes what an agent that was
// killed while it put a renewed pair in its place has begun: the key is there
// and the certificate is not.
func loadKeyPair(cfg Config) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err == nil {
		return pair, nil
	}
	next, nextErr := tls.LoadX509KeyPair(cfg.CertFile+nextSuffix, cfg.KeyFile)
	if nextErr != nil {
		return pair, err
	}
	return next, putInPlace(cfg.CertFile)
}
