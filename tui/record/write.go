package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protodelim"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Version is the format of the recordings that this falcon writes, and the only one that
// it plays.
const Version = 3

// magicName begins the first line of a recording; the number behind it is the format's.
const magicName = "falcon recording "

var magic = fmt.Sprintf("%s%d\n", magicName, Version)

// Bounds of a writer.
const (
	DefaultLimit = 512 << 20   // bytes of a recording
	queueLength  = 32          // pictures that wait to be written
	flushPeriod  = time.Second // what a crash can lose
	window       = 1 << 20     // bytes that compression looks back
	wholeFrames  = 64          // at least so many from one whole frame to the next
	wholeShare   = 4           // and so many times its size
)

// ErrExists is returned for a file that is there already.
var ErrExists = errors.New("record: the file exists")

// Options shape a recording.
type Options struct {
	Version string           // of the program
	From    string           // what is recorded, in words
	Limit   int64            // bytes; 0 = DefaultLimit
	Resume  bool             // go on with a recording that exists
	Now     func() time.Time // nil = the real clock

	flushEach bool // after each picture, for tests
}

// Writer writes a recording. Take may be called from one goroutine at a time.
type Writer struct {
	path    string
	opts    Options
	file    *os.File
	queue   chan picture
	dropped atomic.Uint64
	closing chan struct{}
	done    chan struct{}
	once    sync.Once

	// The goroutine's own, and whoever's after done.
	zip   *zstd.Encoder
	count *counter
	scene *scene
	since int // bytes since the last whole frame
	n     int // frames since it
	size  int // of it
	lost  uint64
	sum   Sum
	err   error
	full  atomic.Bool
	fault atomic.Bool // err is set
}

type picture struct {
	state   *feed.State
	at      time.Time
	dropped uint64
}

// counter counts the bytes that reach the file.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Create begins a recording. A file that exists is refused, unless it is a
// recording and Options.Resume is set.
func Create(path string, o Options) (*Writer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	file, before, err := createFile(path, o.Resume)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		path:    path,
		opts:    o,
		file:    file,
		count:   &counter{w: file},
		scene:   newScene(),
		queue:   make(chan picture, queueLength),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	w.sum.Path = path
	if err := w.openStream(before); err != nil {
		_ = file.Close()
		return nil, err
	}
	go w.writeLoop()
	return w, nil
}

// createFile makes the file; of one that is resumed it returns what it held.
func createFile(path string, resume bool) (*os.File, [][]byte, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return file, nil, err
	}
	if !resume {
		return nil, nil, fmt.Errorf("%w: %s", ErrExists, path)
	}
	old, err := Open(path)
	if errors.Is(err, ErrEmpty) {
		old = &Recording{}
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	// A cut file can't be appended to: a copy takes its place.
	beside := path + ".new"
	file, err = os.OpenFile(beside, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Rename(beside, path); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, old.entries, nil
}

func (w *Writer) openStream(before [][]byte) error {
	if _, err := io.WriteString(w.count, magic); err != nil {
		return err
	}
	zip, err := zstd.NewWriter(
		w.count,
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window),
		zstd.WithEncoderLevel(zstd.SpeedDefault),
	)
	if err != nil {
		return err
	}
	w.zip = zip
	for _, raw := range before {
		if _, err := zip.Write(raw); err != nil {
			return err
		}
	}
	_, err = protodelim.MarshalTo(zip, &falconv1.RecordEntry{
		Body: &falconv1.RecordEntry_Header{Header: &falconv1.RecordHeader{
			AtUnixNs: w.opts.Now().UnixNano(),
			Version:  w.opts.Version,
			From:     w.opts.From,
		}},
	})
	return errors.Join(err, zip.Flush())
}

// Take records a picture. It never blocks: what the writer can't take is dropped and counted.
func (w *Writer) Take(s *feed.State) {
	select {
	case <-w.closing:
		return
	default:
	}
	if w.full.Load() {
		return
	}
	p := picture{s, w.opts.Now(), w.dropped.Load()}
	select {
	case w.queue <- p:
	default:
		w.dropped.Add(1)
	}
}

// Record is Take for who has time: it waits for room instead of dropping.
func (w *Writer) Record(s *feed.State) {
	select {
	case w.queue <- picture{s, w.opts.Now(), w.dropped.Load()}:
	case <-w.closing:
	}
}

// Stopped is why nothing more is recorded; "" while it goes on.
func (w *Writer) Stopped() string {
	switch {
	case w.fault.Load():
		return "its file cannot be written"
	case w.full.Load():
		return "it is at its limit of " + bytesText(w.opts.Limit)
	}
	return ""
}

// Close writes what waits and ends the file. It returns the first error, each time.
func (w *Writer) Close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.done
	return w.err
}

func (w *Writer) writeLoop() {
	defer close(w.done)
	defer w.finish()
	flush := time.NewTicker(flushPeriod)
	defer flush.Stop()
	for {
		select {
		case p := <-w.queue:
			w.writeState(p)
		case <-flush.C:
			w.flushStream()
		case <-w.closing:
			for len(w.queue) > 0 {
				w.writeState(<-w.queue)
			}
			return
		}
	}
}

func (w *Writer) finish() {
	w.keepError(w.zip.Close())
	w.keepError(w.file.Close())
	w.sum.Bytes, w.sum.Dropped = w.count.n, w.dropped.Load()
}

func (w *Writer) keepError(err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("record: %s: %w", w.path, err)
		w.fault.Store(true)
	}
}

func (w *Writer) flushStream() {
	if w.err == nil && !w.full.Load() {
		w.keepError(w.zip.Flush())
	}
}

func (w *Writer) writeState(p picture) {
	if w.err != nil || w.full.Load() {
		return
	}
	n, whole, err := w.putFrame(p)
	w.keepError(err)
	if whole {
		w.size = n
		w.since = 0
		w.n = 0
	}
	w.since += n
	w.n++
	w.sum.addFrame(p.at)
	if w.opts.flushEach {
		w.flushStream()
	}
	if w.count.n > w.opts.Limit {
		w.sum.Full = true
		w.full.Store(true)
	}
}

// putFrame writes one frame: the changes, or regularly all, so that a player can begin there.
func (w *Writer) putFrame(p picture) (n int, whole bool, err error) {
	whole = w.sum.Frames == 0 || w.n >= wholeFrames && w.since >= wholeShare*w.size
	if whole {
		w.scene = newScene()
	}
	f := w.scene.recordState(p.state, p.at)
	f.Whole, f.Dropped = whole, p.dropped-w.lost
	w.lost = p.dropped
	n, err = protodelim.MarshalTo(w.zip, &falconv1.RecordEntry{Body: &falconv1.RecordEntry_Frame{Frame: f}})
	return n, whole, err
}

// Sum is what a recording came to; only after Close.
func (w *Writer) Sum() Sum { return w.sum }

// Sum is what a finished recording came to.
type Sum struct {
	Path        string
	Frames      int
	Dropped     uint64
	Bytes       int64
	First, Last time.Time
	Full        bool // it stopped at its limit
}

func (s *Sum) addFrame(at time.Time) {
	if s.Frames == 0 {
		s.First = at
	}
	s.Frames++
	s.Last = at
}

// String is one line for the operator.
func (s Sum) String() string {
	line := fmt.Sprintf("recorded %s: %d pictures over %s, %s",
		s.Path, s.Frames, s.Last.Sub(s.First).Round(time.Second), bytesText(s.Bytes))
	if s.Dropped > 0 {
		line += fmt.Sprintf("; %d were lost as the disk was too slow", s.Dropped)
	}
	if s.Full {
		line += "; it stops there, at its limit"
	}
	return line
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
