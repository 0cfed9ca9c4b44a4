package ranktable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrBase says that a delta is not for the table at hand: ask for it whole. It
// wraps ErrTable.
var ErrBase = fmt.Errorf("%w: the delta is for another table", ErrTable)

// Limits of a delta; over them the whole table is sent.
const (
	EditsMost      = 1 << 14
	DeltaBytesMost = 8 << 20
)

// Sidecar is what stands beside a table of one generation: HCCL has no field
// for it. Sum is the CRC-32C of the table's bytes: it tells a wrong base from
// the right one and says nothing about who wrote it.
type Sidecar struct {
	Generation uint64 `json:"generation"`
	Bytes      int    `json:"bytes"`
	Sum        uint32 `json:"crc32c"`
}

// SidecarOf describes the bytes of a table.
func SidecarOf(table []byte, generation uint64) Sidecar {
	return Sidecar{Generation: generation, Bytes: len(table), Sum: sum(table)}
}

// Of says whether these are the bytes that the sidecar describes.
func (s Sidecar) Of(table []byte) bool { return len(table) == s.Bytes && sum(table) == s.Sum }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Delta turns the bytes of one table into those of another. Whoever applies it
// need not know what a rank table is.
type Delta struct {
	Base   Sidecar `json:"base"`
	Result Sidecar `json:"result"`
	Edits  []Edit  `json:"edits"`
}

// Edit replaces Cut bytes at offset At of the base. Edits ascend and do not
// overlap.
type Edit struct {
	At  int    `json:"at"`
	Cut int    `json:"cut"`
	Put []byte `json:"put"` // base64 in JSON
}

// Diff compares two tables line by line: for those of Encode an edit is a
// server that changed. Any bytes can be compared.
func Diff(base []byte, baseGeneration uint64, result []byte, generation uint64) Delta {
	d := Delta{Base: SidecarOf(base, baseGeneration), Result: SidecarOf(result, generation)}
	if bytes.Count(base, newline) == bytes.Count(result, newline) {
		d.Edits = linewise(base, result)
	} else {
		d.Edits = spliced(base, result)
	}
	if len(d.Edits) > EditsMost {
		d.Edits = spliced(base, result)
	}
	return d
}

var newline = []byte{'\n'}

// linewise compares texts of equally many lines.
func linewise(base, result []byte) []Edit {
	var out []Edit
	for at := 0; at < len(base) || len(result) > 0; {
		a, b := line(base[at:]), line(result)
		if !bytes.Equal(a, b) {
			if n := len(out) - 1; n >= 0 && out[n].At+out[n].Cut == at {
				out[n].Cut += len(a)
				out[n].Put = append(out[n].Put, b...)
			} else {
				out = append(out, Edit{At: at, Cut: len(a), Put: bytes.Clone(b)})
			}
		}
		at += len(a)
		result = result[len(b):]
	}
	return out
}

// line is the text up to and with its first newline.
func line(b []byte) []byte {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i+1]
	}
	return b
}

// spliced replaces what lies between the common beginning and the common end.
func spliced(base, result []byte) []Edit {
	n := min(len(base), len(result))
	from := 0
	for from < n && base[from] == result[from] {
		from++
	}
	end := 0
	for end < n-from && base[len(base)-1-end] == result[len(result)-1-end] {
		end++
	}
	if from == len(base) && from == len(result) {
		return nil
	}
	return []Edit{{At: from, Cut: len(base) - end - from, Put: bytes.Clone(result[from : len(result)-end])}}
}

// Apply makes the new table from the base: the very bytes that Diff saw, or an
// error that wraps ErrBase (ask for the whole table) or ErrTable.
func (d Delta) Apply(base []byte) ([]byte, error) {
	if d.Result.Bytes < 0 || d.Result.Bytes > BytesMost || len(d.Edits) > EditsMost {
		return nil, fmt.Errorf("%w: the delta is over the limits", ErrTable)
	}
	if !d.Base.Of(base) {
		return nil, fmt.Errorf("%w: generation %d of %d bytes, not these %d", ErrBase, d.Base.Generation, d.Base.Bytes, len(base))
	}
	out := make([]byte, 0, d.Result.Bytes)
	at := 0
	for _, e := range d.Edits {
		if e.At < at || e.Cut < 0 || e.At > len(base) || e.Cut > len(base)-e.At || len(out)+e.At-at+len(e.Put) > d.Result.Bytes {
			return nil, fmt.Errorf("%w: the delta's edit at byte %d overlaps another or lies outside", ErrTable, e.At)
		}
		out = append(append(out, base[at:e.At]...), e.Put...)
		at = e.At + e.Cut
	}
	out = append(out, base[at:]...)
	if !d.Result.Of(out) {
		return nil, fmt.Errorf("%w: the result is not the table that the delta promises", ErrTable)
	}
	return out, nil
}

// Encode writes the delta as JSON.
func (d Delta) Encode() ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("ranktable: can't write a delta: %w", err)
	}
	return b, nil
}

// DecodeDelta reads a delta, strictly. An error wraps ErrTable.
func DecodeDelta(b []byte) (Delta, error) {
	if len(b) > DeltaBytesMost {
		return Delta{}, fmt.Errorf("%w: a delta over the limit of %d bytes", ErrTable, DeltaBytesMost)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var d Delta
	if err := dec.Decode(&d); err != nil {
		return Delta{}, fmt.Errorf("%w: this is no delta: %w", ErrTable, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Delta{}, fmt.Errorf("%w: more follows after the delta", ErrTable)
	}
	return d, nil
}
