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

	"github.com/failslow/falcon/agent/internal/ownfile"
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
	sum := sha256.Sum256(body)
	if !bytes.Equal(sum[:], b[len(magic):sealBytes]) {
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
	if err := ownfile.Replace(path, sealed); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// Load reads a file of at most so many bytes into head and parts. An absent one
// is an fs.ErrNotExist, one that is not this user's alone ErrDamaged.
func Load(path string, most int64, head any) ([][]byte, error) {
	b, err := ownfile.Read(path, most)
	switch {
	case errors.Is(err, ownfile.ErrForeign):
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return nil, fmt.Errorf("relay: %w", err)
	}
	parts, err := Decode(b, head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return parts, nil
}
