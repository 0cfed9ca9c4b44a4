// Package snapshot is a rank's state as bytes, and the sets of files that make a
// checkpoint.
//
// It guarantees that an image which opens is the one that was sealed, and that a
// set is listed only when all its files were on disk before; a half-written one
// never is. What it reads it takes for hostile. It starts no goroutines, knows
// nothing of devices, and reads and writes no more than the files it is given.
package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// ErrImage is wrapped by every complaint about an image that is not what it
// should be.
var ErrImage = errors.New("trainer: bad state")

// HeadBytes is the length of an image's first line, blanks included.
const HeadBytes = 1024

// Head is an image's first line, as JSON: all of a rank's logical state but for
// the numbers behind it. There is no random state beyond the seed, as samples
// are addressed by number.
type Head struct {
	Iteration int64         `json:"iteration"` // the next one to run
	Consumed  int64         `json:"consumed"`  // micro-batches of the job's life that were trained on
	Rank      falcon.Rank   `json:"rank"`
	Layout    falcon.Layout `json:"layout"`
	Virtual   int           `json:"virtual_stages"`
	Hidden    int           `json:"hidden"`
	FFN       int           `json:"ffn"`
	Layers    int           `json:"layers"`
	Seed      uint64        `json:"seed"`
	Sharded   bool          `json:"sharded"`
	Weights   int           `json:"weights"` // elements
	Moments   int           `json:"moments"` // elements of each
	SHA256    string        `json:"sha256"`  // of what follows the line
}

// Image is a rank's state: the head, then the weights and the two moments as
// they lie on the device (float32, this machine's byte order). It is what a
// checkpoint's file holds and what a placement exchanges; those of all ranks of
// a layout have the same length.
type Image []byte

// Seal writes the head in front of numbers that are complete.
func (im Image) Seal(h Head) error {
	sum := sha256.Sum256(im[HeadBytes:])
	h.SHA256 = hex.EncodeToString(sum[:])
	line, err := json.Marshal(h)
	if err == nil && len(line) >= HeadBytes {
		err = fmt.Errorf("%w: a head of %d bytes", ErrImage, len(line))
	}
	if err != nil {
		return err
	}
	copy(im, bytes.Repeat([]byte(" "), HeadBytes-1))
	copy(im, line)
	im[HeadBytes-1] = '\n'
	return nil
}

// Open checks an image from elsewhere and returns its head.
func (im Image) Open() (Head, error) {
	var h Head
	if len(im) < HeadBytes || json.Unmarshal(im[:HeadBytes], &h) != nil {
		return h, fmt.Errorf("%w: its first line can't be read", ErrImage)
	}
	sum := sha256.Sum256(im[HeadBytes:])
	if h.SHA256 != hex.EncodeToString(sum[:]) {
		return h, fmt.Errorf("%w: its checksum is not that of its numbers", ErrImage)
	}
	return h, nil
}

// Sum is the checksum of the numbers as one word.
func (h Head) Sum() uint64 {
	b, _ := hex.DecodeString(h.SHA256) // what Seal wrote, or Open compared
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Expect opens an image whose head must be want, but for the checksum.
func (im Image) Expect(want Head) error {
	h, err := im.Open()
	if err != nil {
		return err
	}
	if want.SHA256 = h.SHA256; h != want {
		return fmt.Errorf("%w: %+v came instead of %+v", ErrImage, h, want)
	}
	return nil
}
