// Package relay keeps what one life of an agent leaves to the next: a sealed
// file that holds a head and a list of parts.
//
// It guarantees that a reader gets all of what was saved, or an error: the file
// is replaced at once, checksummed, of this user alone (0600) and no larger than
// the reader allows. It knows nothing of what is in it, starts no goroutines and
// is safe for one writer at a time.
package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrDamaged is wrapped where a file is not what was saved.
var ErrDamaged = errors.New("relay: damaged file")

const (
	magic     = "FALCREL1"
	sealBytes = len(magic) + sha256.Size
	partsMax  = 1 << 21
)

// Encode seals a head and parts.
func Encode(head any, parts [][]byte) ([]byte, error) {
	text, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	out := append(make([]byte, 0, sealBytes+len(text)+16), magic...)
	out = append(out, make([]byte, sha256.Size)...)
	for _, p := range append([][]byte{text}, parts...) {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	sum := sha256.Sum256(out[sealBytes:])
	copy(out[len(magic):], sum[:])
	return out, nil
}

// Decode opens what Encode sealed. Fields of the head that the reader does not
// know are ignored, so that a newer agent may add some; a change that an older
// reader must not miss raises the version in the head. The parts share b's memory.
func Decode(b []byte, head any) ([][]byte, error) {
	if len(b) < sealBytes || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not start as one", ErrDamaged)
	}
	body := b[sealBytes:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[len(magic):sealBytes]) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	parts, err := split(body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(parts[0], head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return parts[1:], nil
}

func split(body []byte) (parts [][]byte, err error) {
	for len(body) > 0 {
		if len(body) < 4 || len(parts) >= partsMax {
			return nil, fmt.Errorf("%w: it ends in the middle", ErrDamaged)
		}
		n := int64(binary.LittleEndian.Uint32(body))
		if n > int64(len(body)-4) {
			return nil, fmt.Errorf("%w: it ends in the middle", ErrDamaged)
		}
		parts = append(parts, body[4:4+n])
		body = body[4+n:]
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	return parts, nil
}

// Save replaces the file at once: a reader sees the old one or the new one.
func Save(path string, sealed []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("relay: %w", err)
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	_, err = f.Write(sealed)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// Load reads a file of at most so many bytes into head and parts. An absent one
// is an fs.ErrNotExist, one that is not this user's alone ErrDamaged.
func Load(path string, most int64, head any) ([][]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Size > most {
		return nil, fmt.Errorf("%w: %s is not a file of this agent's alone, or has more than %d bytes", ErrDamaged, path, most)
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	parts, err := Decode(b, head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return parts, nil
}
