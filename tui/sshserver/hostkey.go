package sshserver

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	gossh "golang.org/x/crypto/ssh"
)

// ErrHostKey is wrapped by every error about the server's own key.
var ErrHostKey = errors.New("sshserver: host key")

// loadHostKey reads the server's key, or makes one when there is none. Whoever
// reads it could impersonate the server, so that it must be the owner's alone.
func loadHostKey(path string) (gossh.Signer, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = makeHostKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHostKey, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHostKey, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: others may read %s; chmod 600 it", ErrHostKey, path)
	}
	signer, err := gossh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf(
			"%w: %s: %w; give an OpenSSH private key without a passphrase, or remove the file to have one made",
			ErrHostKey, path, err,
		)
	}
	return signer, nil
}

// CheckHostKey returns why the server's key can't be used; one that is missing is made at the
// start.
func CheckHostKey(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := loadHostKey(path)
	return err
}

// makeHostKey writes the key whole or not at all, and never over another.
func makeHostKey(path string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := gossh.MarshalPrivateKey(private, "falcon")
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(block)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".host-key-*") // 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}
