package ranktable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// EditsMost bounds a delta; over it one edit replaces all that differs.
const EditsMost = 1 << 14

// Sidecar identifies a table of one generation: HCCL has no field for it. Sum is the
// CRC-32C of the table's bytes: it distinguishes a wrong base and does not
// show who wrote it.
type Sidecar struct {
	Generation uint64 `json:"generation"`
	Bytes      int    `json:"bytes"`
	Sum        uint32 `json:"crc32c"`
}

// Describe returns the sidecar of a table's bytes.
func Describe(table []byte, generation uint64) Sidecar {
	return Sidecar{
		Generation: generation,
		Bytes:      len(table),
		Sum:        crc32.Checksum(table, castagnoli),
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
	d := Delta{Base: Describe(base, baseGeneration), Result: Describe(result, generation)}
	if bytes.Count(base, newline) == bytes.Count(result, newline) {
		d.Edits = changedLines(base, result)
	} else {
		d.Edits = changedMiddle(base, result)
	}
	if len(d.Edits) > EditsMost {
		d.Edits = changedMiddle(base, result)
	}
	return d
}

var newline = []byte{'\n'}

// changedLines compares texts of equally many lines.
func changedLines(base, result []byte) []Edit {
	var out []Edit
	for at := 0; at < len(base) || len(result) > 0; {
		a := firstLine(base[at:])
		b := firstLine(result)
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

// firstLine is the text up to and with its first newline.
func firstLine(b []byte) []byte {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i+1]
	}
	return b
}

// changedMiddle replaces what lies between the common beginning and the common end.
func changedMiddle(base, result []byte) []Edit {
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
	return []Edit{{
		At:  from,
		Cut: len(base) - end - from,
		Put: bytes.Clone(result[from : len(result)-end]),
	}}
}

// Encode writes the delta as JSON.
func (d Delta) Encode() ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("ranktable: can't write a delta: %w", err)
	}
	return b, nil
}
