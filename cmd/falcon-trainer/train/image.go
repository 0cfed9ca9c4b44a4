package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// errImage is wrapped by every complaint about an image that is not what it
// should be.
var errImage = errors.New("trainer: bad state")

// headBytes is the length of an image's first line, blanks included.
const headBytes = 1024

// imageHead is an image's first line: all of a rank's logical state but for the
// numbers behind it. There is no random state beyond the seed, as samples are
// addressed by number.
type imageHead struct {
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

// image is a rank's state in pinned host memory: the head, then the weights and
// the two moments as they lie on the device (float32, this machine's byte
// order). It is what a checkpoint's file holds and what a placement exchanges;
// those of all ranks of a layout have the same length.
type image []byte

func newImage(q *device.Queue, o *optimizer) image {
	n := headBytes
	for _, part := range o.state() {
		n += 4 * part.Len()
	}
	return device.AllocHost[byte](q, n)
}

// each calls f with every part of the state and its place in the image.
func (im image) each(o *optimizer, f func(host []byte, part device.Memory)) {
	rest := im[headBytes:]
	for _, part := range o.state() {
		f(rest[:4*part.Len()], part.Memory())
		rest = rest[4*part.Len():]
	}
}

// seal writes the head in front of numbers that are complete.
func (im image) seal(h imageHead) error {
	sum := sha256.Sum256(im[headBytes:])
	h.SHA256 = hex.EncodeToString(sum[:])
	line, err := json.Marshal(h)
	if err == nil && len(line) >= headBytes {
		err = fmt.Errorf("%w: a head of %d bytes", errImage, len(line))
	}
	if err != nil {
		return err
	}
	copy(im, bytes.Repeat([]byte(" "), headBytes-1))
	copy(im, line)
	im[headBytes-1] = '\n'
	return nil
}

// open checks an image from elsewhere and returns its head.
func (im image) open() (imageHead, error) {
	var h imageHead
	if len(im) < headBytes || json.Unmarshal(im[:headBytes], &h) != nil {
		return h, fmt.Errorf("%w: its first line can't be read", errImage)
	}
	sum := sha256.Sum256(im[headBytes:])
	if h.SHA256 != hex.EncodeToString(sum[:]) {
		return h, fmt.Errorf("%w: its checksum is not that of its numbers", errImage)
	}
	return h, nil
}

// head describes rank's state with which iteration next begins.
func (w *worker) head(rank falcon.Rank, next int64) imageHead {
	parts, s := w.optim.state(), w.cfg.Shape
	return imageHead{
		Iteration: next, Consumed: w.trainingBatch(next).first - int64(w.split.First(w.at.DP)), Rank: rank,
		Layout: w.cfg.Layout, Virtual: s.VirtualStages(), Hidden: s.Hidden, FFN: s.FFN, Layers: s.Layers,
		Seed: w.cfg.Seed, Sharded: w.optim.sharded, Weights: parts[0].Len(), Moments: parts[1].Len(),
	}
}

// capture copies this rank's state into *im, which is made when first needed.
// The copy lasts as long as that of the emulated state; lasted says how long
// that part is.
func (w *worker) capture(im *image, next int64) (emulated time.Duration, err error) {
	began := time.Now()
	if *im == nil {
		*im = newImage(w.q, w.optim)
	}
	im.each(w.optim, func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.wait(); err != nil {
		return 0, err
	}
	emulated = w.cfg.State.copying(len(*im))
	return emulated, w.unlocked(func() error {
		return errors.Join(im.seal(w.head(w.rank, next)), w.nap(emulated-time.Since(began)))
	})
}

// load copies im onto the device.
func (w *worker) load(im image) (emulated time.Duration, err error) {
	began := time.Now()
	im.each(w.optim, func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	if err := w.wait(); err != nil {
		return 0, err
	}
	emulated = w.cfg.State.copying(len(im))
	return emulated, w.unlocked(func() error { return w.nap(emulated - time.Since(began)) })
}
