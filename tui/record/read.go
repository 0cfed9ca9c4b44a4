package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
)

// Errors of Open.
var (
	ErrFormat  = errors.New("record: not a recording")
	ErrVersion = errors.New("record: made by another version")
	ErrEmpty   = errors.New("record: nothing was recorded")
)

// Bounds of a reader.
const (
	maxEntry   = 64 << 20 // bytes of one entry
	maxDecoded = 1 << 30  // bytes of all
	maxWindow  = 8 << 20  // that compression may look back
)

// Moment is one frame's place in a recording.
type Moment struct {
	At        time.Time
	Iteration int64
	Event     bool     // an event line came with it
	Incident  bool     // an incident or a recovery began with it
	Begins    []string // the ids of those
	Dropped   uint64   // frames lost just before it
	whole     bool
	entry     int
}

// Recording is one that was read. It is not changed after Open, but Scene and
// Player hold positions of their own.
type Recording struct {
	Version string // of the program that recorded
	From    string // what was recorded, in words
	Cut     string // why it ends before its end, or ""
	Moments []Moment
	entries [][]byte         // with their lengths before them
	ladders map[string][]int // frames that brought an incident's ladder, ascending
}

// Open reads a recording as far as it is valid; one that was cut plays up to the cut.
func Open(path string) (*Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f)
}

// Read is Open from a reader.
func Read(from io.Reader) (*Recording, error) {
	head := make([]byte, len(magic))
	switch _, err := io.ReadFull(from, head); {
	case err != nil || !bytes.HasPrefix(head, []byte(magicName)):
		return nil, ErrFormat
	case string(head) != magic:
		return nil, ErrVersion
	}
	zip, err := zstd.NewReader(
		from,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderMaxMemory(maxDecoded),
	)
	if err != nil {
		return nil, err
	}
	defer zip.Close()
	r := &Recording{ladders: map[string][]int{}}
	if err := r.readEntries(bufio.NewReader(zip)); err != nil {
		r.Cut = err.Error()
	}
	if len(r.Moments) == 0 {
		return nil, ErrEmpty
	}
	return r, nil
}

func (r *Recording) readEntries(in *bufio.Reader) error {
	ix := indexer{known: map[string]bool{}}
	for total := 0; ; {
		raw, err := readEntry(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if total += len(raw); total > maxDecoded {
			return fmt.Errorf("it is larger than %s", bytesText(maxDecoded))
		}
		e, err := decode(raw)
		if err != nil {
			return err
		}
		if h := e.GetHeader(); h != nil {
			r.Version, r.From = h.Version, h.From
		}
		if f := e.GetFrame(); f != nil {
			if len(r.Moments) == 0 && !f.Whole {
				return fmt.Errorf("%w: it begins with a change", ErrFrame)
			}
			m := ix.moment(f)
			m.entry = len(r.entries)
			for _, l := range append([]*falconv1.Ladder{f.Snap.GetLadder()}, f.Snap.GetOthers()...) {
				if l != nil {
					r.ladders[l.Incident] = append(r.ladders[l.Incident], len(r.Moments))
				}
			}
			r.Moments = append(r.Moments, m)
		}
		r.entries = append(r.entries, raw)
	}
}

// readEntry reads one entry with its length; io.EOF at the regular end.
func readEntry(in *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	if n > maxEntry {
		return nil, fmt.Errorf("%w: %d bytes", ErrFrame, n)
	}
	raw := binary.AppendUvarint(nil, n)
	body, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err == nil && uint64(len(body)) < n {
		err = io.ErrUnexpectedEOF
	}
	return append(raw, body...), err
}

func decode(raw []byte) (*falconv1.RecordEntry, error) {
	_, n := binary.Uvarint(raw)
	e := &falconv1.RecordEntry{}
	if err := proto.Unmarshal(raw[max(0, n):], e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	clean.Message(e) // the file may come from another machine
	return e, nil
}

// indexer finds what is worth a jump.
type indexer struct {
	known     map[string]bool // incidents and recoveries
	engine    string
	seq       uint64
	iteration int64
	begun     bool
}

func (x *indexer) moment(f *falconv1.RecordFrame) Moment {
	m := Moment{
		At:      atUnixNs(f.AtUnixNs),
		Dropped: f.Dropped,
		whole:   f.Whole,
	}
	if j := f.Snap.GetJob(); j != nil {
		x.iteration = j.Iteration
	}
	m.Iteration = x.iteration
	if id := f.Snap.GetEngineId(); id != "" && id != x.engine {
		x.engine, x.seq = id, 0
	}
	for _, e := range f.Events {
		if e.Seq > x.seq {
			x.seq = e.Seq
			m.Event = true
		}
	}
	for _, i := range f.Snap.GetIncidents() {
		m.Begins = x.addUnknown(m.Begins, i.Id)
	}
	if v := f.Snap.GetRecovery(); v != nil {
		m.Begins = x.addUnknown(m.Begins, v.Id)
	}
	m.Incident = len(m.Begins) > 0
	m.Event = m.Event && x.begun
	x.begun = true
	return m
}

// addUnknown adds an id that was not known.
func (x *indexer) addUnknown(list []string, id string) []string {
	if x.known[id] {
		return list
	}
	x.known[id] = true
	return append(list, id)
}

// cursor makes pictures of a recording, cheapest in order.
type cursor struct {
	r     *Recording
	at    int // -1 = before the first
	scene *scene
	state *feed.State
}

func (r *Recording) cursor() *cursor {
	return &cursor{r: r, at: -1, scene: newScene()}
}

// moveTo moves to a frame. It stays where it is before a frame that is invalid.
func (c *cursor) moveTo(i int) (*feed.State, error) {
	if i == c.at && c.state != nil {
		return c.state, nil
	}
	from := i
	for from > 0 && !c.r.Moments[from].whole {
		from--
	}
	if c.at >= from && c.at < i {
		from = c.at + 1
	}
	for k := from; k <= i; k++ {
		e, err := decode(c.r.entries[c.r.Moments[k].entry])
		if err != nil {
			return nil, err
		}
		s, err := c.scene.applyFrame(e.GetFrame())
		if err != nil {
			c.at, c.scene = -1, newScene()
			return nil, err
		}
		c.at, c.state = k, s
	}
	return c.state, nil
}

// All visits every frame in order, until visit says no.
func (r *Recording) All(visit func(Moment, *feed.State) bool) error {
	c := r.cursor()
	for i, m := range r.Moments {
		s, err := c.moveTo(i)
		if err != nil {
			return err
		}
		if !visit(m, s) {
			return nil
		}
	}
	return nil
}
