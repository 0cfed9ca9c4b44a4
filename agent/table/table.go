package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"

	"github.com/failslow/falcon/agent/internal/ownfile"
)

// Errors of this package; texts are one sentence for the operator.
var (
	// ErrTable is wrapped by every refusal.
	ErrTable = errors.New("table: refused")
	// ErrBase is returned where a delta is for another table than the one kept here: send
	// it whole. It wraps ErrTable.
	ErrBase = fmt.Errorf("%w: the delta is for another table, send it whole", ErrTable)
	// ErrFile is wrapped where the files can't be read or written.
	ErrFile = errors.New("table: bad file")
)

// Bounds.
const (
	BytesMax   = 32 << 20 // of one table
	EditsMax   = 1 << 14  // of one delta
	sidecarMax = 4096
	sidecarEnd = ".generation"
)

// Version is of what is written about tables: the sidecar, and the delta that the engine
// sends. It is raised together with falconv1.ProtocolRevision.
const Version = 1

// Sidecar describes the table beside it. Sum is the CRC-32C of its bytes.
type Sidecar struct {
	Generation uint64 `json:"generation"`
	Bytes      int    `json:"bytes"`
	Sum        uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newSidecar(table []byte, generation uint64) Sidecar {
	return Sidecar{
		Generation: generation,
		Bytes:      len(table),
		Sum:        crc32.Checksum(table, castagnoli),
	}
}

// describes reports whether these are the bytes that the sidecar describes.
func (s Sidecar) describes(table []byte) bool {
	return s == newSidecar(table, s.Generation)
}

// delta is what recovery/ranktable writes for an agent.
type delta struct {
	Base   Sidecar `json:"base"`
	Result Sidecar `json:"result"`
	Edits  []edit  `json:"edits"`
}

// edit replaces Cut bytes at offset At of the base. Edits ascend and do not
// overlap.
type edit struct {
	At  int    `json:"at"`
	Cut int    `json:"cut"`
	Put []byte `json:"put"`
}

// Store keeps one rank table.
type Store struct {
	path string // empty = in memory only

	mu     sync.Mutex
	loaded bool
	newest Sidecar // of no bytes = none so far
	table  []byte  // nil where the file does not fit the sidecar
}

// Places are the paths that a table at path is written to.
func Places(path string) []string {
	side := path + sidecarEnd
	return []string{path, path + ownfile.NextSuffix, side, side + ownfile.NextSuffix}
}

// New keeps the table at path; nothing is read or written before the first Put.
func New(path string) *Store { return &Store{path: path} }

// Put takes the whole table of a generation. The same again is done already; an
// older generation, or another table of the same one, wraps ErrTable.
func (s *Store) Put(generation uint64, table []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.loadFile(); err != nil {
		return err
	}
	return s.storeTable(generation, table)
}

// Apply makes the table of a generation from the one of the base generation. An
// error that wraps ErrBase asks for the whole table.
func (s *Store) Apply(generation, base uint64, change []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.loadFile(); err != nil {
		return err
	}
	d, err := decodeDelta(change)
	if err != nil {
		return err
	}
	switch {
	case d.Base.Generation != base || d.Result.Generation != generation:
		return fmt.Errorf("%w: the delta leads from generation %d to %d, the command from %d to %d",
			ErrTable, d.Base.Generation, d.Result.Generation, base, generation)
	case generation == s.newest.Generation && s.table != nil && d.Result == s.newest:
		return nil // again
	case generation < s.newest.Generation:
		return s.olderError(generation)
	case s.table == nil || d.Base != s.newest:
		return fmt.Errorf("%w: here is generation %d", ErrBase, s.newest.Generation)
	}
	table, err := d.applyTo(s.table)
	if err != nil {
		return err
	}
	return s.storeTable(generation, table)
}

// Newest is the generation of the table that is kept, 0 = none, or one is being written. It does not
// wait for a disk that writes one.
func (s *Store) Newest() uint64 {
	if !s.mu.TryLock() {
		return 0
	}
	defer s.mu.Unlock()
	if s.loadFile() != nil {
		return 0
	}
	return s.newest.Generation
}

// OlderError refuses a table of a generation before the one that is kept. It is an ErrTable.
type OlderError struct{ Asked, Newest uint64 }

func (e *OlderError) Error() string {
	return fmt.Sprintf("%s: generation %d is older than %d, which is here", ErrTable, e.Asked, e.Newest)
}

// Is reports whether the error is an ErrTable.
func (e *OlderError) Is(target error) bool { return target == ErrTable }

func (s *Store) olderError(generation uint64) error {
	return &OlderError{Asked: generation, Newest: s.newest.Generation}
}

// storeTable stores a table that was checked or not, when its generation allows it.
func (s *Store) storeTable(generation uint64, table []byte) error {
	next := newSidecar(table, generation)
	switch {
	case len(table) == 0 || len(table) > BytesMax:
		return fmt.Errorf("%w: %d bytes of generation %d are no table", ErrTable, len(table), generation)
	case generation < s.newest.Generation:
		return s.olderError(generation)
	case next == s.newest && s.table != nil:
		return nil
	case generation == s.newest.Generation && s.table != nil:
		return fmt.Errorf("%w: generation %d has another table here", ErrTable, generation)
	}
	if err := s.writeFiles(next, table); err != nil {
		return err
	}
	s.newest, s.table = next, table
	return nil
}

func (s *Store) writeFiles(next Sidecar, table []byte) error {
	if s.path == "" {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	if err := replaceFile(s.path, table); err != nil {
		return err
	}
	return replaceFile(s.path+sidecarEnd, text)
}

// loadFile reads what an earlier life left, once.
func (s *Store) loadFile() error {
	if s.loaded || s.path == "" {
		return nil
	}
	text, err := readOwnFile(s.path+sidecarEnd, sidecarMax)
	if errors.Is(err, fs.ErrNotExist) {
		s.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	var side Sidecar
	if err := decodeStrict(text, &side); err != nil {
		return fmt.Errorf("%w: %s: %w; remove it when no process of the job runs here",
			ErrFile, s.path+sidecarEnd, err)
	}
	table, err := readOwnFile(s.path, BytesMax)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.newest, s.loaded = side, true
	if table != nil && side.describes(table) {
		s.table = table
	}
	return nil
}

// decodeStrict decodes one JSON value with known fields and nothing behind it.
func decodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows behind its end")
	}
	return nil
}

func decodeDelta(change []byte) (delta, error) {
	if len(change) > 2*BytesMax {
		return delta{}, fmt.Errorf("%w: a delta of %d bytes", ErrTable, len(change))
	}
	var d delta
	if err := decodeStrict(change, &d); err != nil {
		return delta{}, fmt.Errorf("%w: this is no delta: %w", ErrTable, err)
	}
	if d.Result.Bytes < 0 || d.Result.Bytes > BytesMax || len(d.Edits) > EditsMax {
		return delta{}, fmt.Errorf("%w: the delta is over the limits", ErrTable)
	}
	return d, nil
}

// applyTo makes the result from the base, or returns what does not fit.
func (d delta) applyTo(base []byte) ([]byte, error) {
	out := make([]byte, 0, d.Result.Bytes)
	at := 0
	for _, e := range d.Edits {
		if e.At < at ||
			e.At > len(base) ||
			e.Cut < 0 ||
			e.Cut > len(base)-e.At ||
			len(out)+e.At-at+len(e.Put) > d.Result.Bytes {
			return nil, fmt.Errorf("%w: the edit at byte %d overlaps another or lies outside", ErrTable, e.At)
		}
		out = append(append(out, base[at:e.At]...), e.Put...)
		at = e.At + e.Cut
	}
	if out = append(out, base[at:]...); !d.Result.describes(out) {
		return nil, fmt.Errorf("%w: the result is not the table that the delta promises", ErrTable)
	}
	return out, nil
}

func replaceFile(path string, text []byte) error {
	if err := ownfile.ReplaceDurably(path, text); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	return nil
}

// readOwnFile reads a file of this user's alone.
func readOwnFile(path string, most int64) ([]byte, error) {
	text, err := ownfile.Read(path, most)
	switch {
	case errors.Is(err, ownfile.ErrForeign):
		return nil, fmt.Errorf("%w: %w; remove it when no process of the job runs here", ErrFile, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return text, nil
}
