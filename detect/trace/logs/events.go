package logs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// MaxRecord bounds one record of an event file, in bytes.
const MaxRecord = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedSum is the checksum of TensorFlow's records.
func maskedSum(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// isEvents reports whether a file has the header of a TensorBoard event file.
func isEvents(head []byte) bool {
	return len(head) >= 12 &&
		binary.LittleEndian.Uint64(head) <= MaxRecord &&
		maskedSum(head[:8]) == binary.LittleEndian.Uint32(head[8:])
}

// events reads the scalars of a TensorBoard event file. The last value of a step is
// used.
type events struct {
	*frame
	step, clock *series
	read        int64 // bytes
	records     int
}

func readEvents(r io.Reader) (*frame, error) {
	t := events{frame: newFrame("TensorBoard event file")}
	t.step, t.clock = t.presetColumn("step", column.Step, ""), t.presetColumn("wall_time", column.Clock, "s")
	for {
		record, err := t.nextRecord(r)
		switch {
		case errors.Is(err, io.EOF):
			return t.frame, nil
		case err != nil:
			return nil, err
		case record == nil:
			t.note("the last record is incomplete and is ignored")
			return t.frame, nil
		}
		if err := t.addEvent(record); err != nil {
			return nil, err
		}
	}
}

// nextRecord reads one record; nil if the file ends within it, as in a running job.
func (t *events) nextRecord(r io.Reader) ([]byte, error) {
	var head [12]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil
		}
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, readError(err)
	}
	t.records++
	size := binary.LittleEndian.Uint64(head[:])
	if maskedSum(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, trace.Malformed(0,
			"record %d of the event file, at byte %d, has a wrong checksum; copy the file again",
			t.records, t.read)
	}
	if size > MaxRecord || t.read > trace.MaxBytes || t.records > trace.MaxRows {
		return nil, trace.TooLarge(
			"record %d of the event file has %d bytes after %d bytes of records; only scalars are read",
			t.records, size, t.read,
		)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(size)+4))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, readError(err)
	}
	if uint64(len(data)) < size+4 {
		return nil, nil
	}
	t.read += 12 + int64(len(data))
	if maskedSum(data[:size]) != binary.LittleEndian.Uint32(data[size:]) {
		return nil, trace.Malformed(0,
			"record %d of the event file, at byte %d, has a wrong checksum; copy the file again",
			t.records, t.read)
	}
	return data[:size], nil
}

// Fields of the messages Event, Summary, Value and TensorProto.
const (
	eventTime, eventStep, eventSummary = 1, 2, 5
	summaryValue                       = 1
	valueTag, valueSimple, valueTensor = 1, 2, 8
	tensorType, tensorContent          = 1, 4
	tensorFloats, tensorDoubles        = 5, 6
)

func (t *events) addEvent(record []byte) error {
	var at, step float64
	var summaries [][]byte
	err := eachField(record, func(number int, v wire) {
		switch number {
		case eventTime:
			at = math.Float64frombits(v.bits)
		case eventStep:
			step = float64(int64(v.bits))
		case eventSummary:
			summaries = append(summaries, v.bytes)
		}
	})
	for _, s := range summaries {
		err = errors.Join(err, eachField(s, func(number int, v wire) {
			if number == summaryValue && err == nil {
				err = t.addValue(at, step, v.bytes)
			}
		}))
	}
	if err != nil && !errors.Is(err, trace.ErrTooLarge) {
		return trace.Malformed(0, "record %d of the event file is not an event; copy the file again",
			t.records)
	}
	return err
}

func (t *events) addValue(at, step float64, value []byte) error {
	tag := ""
	number := math.NaN()
	known := false
	err := eachField(value, func(field int, v wire) {
		switch field {
		case valueTag:
			tag = cleanLine(v.bytes)
		case valueSimple:
			number = float64(math.Float32frombits(uint32(v.bits)))
			known = true
		case valueTensor:
			number, known = tensorNumber(v.bytes)
		}
	})
	if err != nil || !known || tag == "" {
		return err
	}
	s, err := t.addColumn(tag)
	if err != nil {
		return err
	}
	if tag == "iteration-time" { // Megatron's, in seconds
		s.means.Unit, s.preset = "s", true
	}
	switch s.means.Role {
	case column.Known, column.Part, column.Step:
		s.count++ // only its name is used
		return nil
	}
	if math.IsInf(number, 0) {
		number = math.NaN()
	}
	return t.setScalar(s, at, step, number)
}

// setScalar sets a number in the row of its step.
func (t *events) setScalar(s *series, at, step, number float64) error {
	row := len(t.lines) - 1
	if row < 0 || t.step.at(row) != step || !math.IsNaN(s.at(row)) {
		row = t.addRow(t.records, noRank)
		if err := errors.Join(t.setCell(t.step, row, step), t.setCell(t.clock, row, at)); err != nil {
			return err
		}
	}
	return t.setCell(s, row, number)
}

// tensorNumber reads a tensor with one float or double.
func tensorNumber(b []byte) (float64, bool) {
	var kind uint64
	var content, floats, doubles []byte
	err := eachField(b, func(number int, v wire) {
		switch number {
		case tensorType:
			kind = v.bits
		case tensorContent:
			content = v.bytes
		case tensorFloats:
			floats = v.packed(4)
		case tensorDoubles:
			doubles = v.packed(8)
		}
	})
	const isFloat, isDouble = 1, 2
	switch {
	case err != nil:
	case kind == isFloat && len(floats) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(floats))), true
	case kind == isFloat && len(content) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(content))), true
	case kind == isDouble && len(doubles) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(doubles)), true
	case kind == isDouble && len(content) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(content)), true
	}
	return 0, false
}
