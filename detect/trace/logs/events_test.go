package logs

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
)

// record frames one message as TensorFlow does.
func record(data []byte) []byte {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out := binary.LittleEndian.AppendUint32(slices.Clone(head), maskedSum(head))
	return binary.LittleEndian.AppendUint32(append(out, data...), maskedSum(data))
}

func fieldBytes(number int, b []byte) []byte {
	out := binary.AppendUvarint(nil, uint64(number)<<3|2)
	return append(binary.AppendUvarint(out, uint64(len(b))), b...)
}

func field64(number int, v float64) []byte {
	return binary.LittleEndian.AppendUint64(
		binary.AppendUvarint(nil, uint64(number)<<3|1),
		math.Float64bits(v),
	)
}

func field32(number int, v float32) []byte {
	return binary.LittleEndian.AppendUint32(
		binary.AppendUvarint(nil, uint64(number)<<3|5),
		math.Float32bits(v),
	)
}

func fieldInt(number int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number)<<3), v)
}

// scalar is an event as PyTorch's SummaryWriter writes it, tensor one as its new
// style or TensorFlow 2 does.
func scalar(wall float64, step uint64, tag string, v float32) []byte {
	value := append(fieldBytes(valueTag, []byte(tag)), field32(valueSimple, v)...)
	return event(wall, step, value)
}

func tensor(wall float64, step uint64, tag string, v float32) []byte {
	content := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
	t := append(fieldInt(tensorType, 1), fieldBytes(tensorContent, content)...)
	return event(
		wall,
		step,
		append(fieldBytes(valueTag, []byte(tag)), fieldBytes(valueTensor, t)...),
	)
}

func event(wall float64, step uint64, value []byte) []byte {
	out := append(field64(eventTime, wall), fieldInt(eventStep, step)...)
	return record(append(out, fieldBytes(eventSummary, fieldBytes(summaryValue, value))...))
}

func version() []byte {
	return record(append(field64(eventTime, 1.7e9), fieldBytes(3, []byte("brain.Event:2"))...))
}

// megatronEvents are the tags that Megatron writes, each also against samples.
func megatronEvents() []byte {
	out := version()
	for i := range 4 {
		wall := 1.7e9 + 2*float64(i)
		step := uint64(10 * (i + 1))
		s := float32(0.2 + 0.01*float32(i))
		out = append(out, scalar(wall, step, "lm loss", 2.5)...)
		out = append(out, scalar(wall, 640*step, "lm loss vs samples", 2.5)...)
		out = append(out, scalar(wall, step, "iteration-time", s)...)
		out = append(out, scalar(wall, 640*step, "iteration-time vs samples", s)...)
	}
	return out
}

func TestReadsEventFiles(t *testing.T) {
	want := []float64{200, 210, 220, 230}
	steps := []int64{10, 20, 30, 40}
	s, err := read(string(megatronEvents()), Want{})
	if err != nil ||
		!near(s.Ms, want) ||
		!slices.Equal(s.Steps, steps) ||
		s.Column != "iteration-time" ||
		s.Unit != "s" ||
		s.Format != "TensorBoard event file" {
		t.Errorf("%+v, %v", s, err)
	}
	cut := megatronEvents()
	s, err = read(string(cut[:len(cut)-9]), Want{})
	if err != nil ||
		len(s.Ms) != 4 ||
		!strings.Contains(strings.Join(s.Notes, ""), "the last record is incomplete") {
		t.Errorf("%+v, %v", s, err)
	}
	var tensors []byte
	for i := range 4 { // only the wall time determines the unit
		tensors = append(tensors, tensor(1.7e9+0.21*float64(i), uint64(i), "perf/step_time", 0.2)...)
	}
	s, err = read(string(tensors), Want{})
	if err != nil ||
		!near(s.Ms, []float64{200, 200, 200, 200}) ||
		s.Unit != "s" ||
		!strings.Contains(s.Why, "by the clock column") {
		t.Errorf("%+v, %v", s, err)
	}
}

// A file that another program wrote.
func TestReadsTensorboardX(t *testing.T) {
	s, err := readFile(t, "tensorboardx.tfevents", Want{})
	if err != nil ||
		len(s.Ms) != 30 ||
		s.Column != "perf/step_time" ||
		s.Unit != "s" ||
		s.Steps[29] != 30 ||
		s.Ms[29] < 340 ||
		s.Ms[0] > 260 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRefusesBrokenEventFiles(t *testing.T) {
	flipped := megatronEvents()
	flipped[len(flipped)-20] ^= 1
	for name, c := range map[string]struct {
		in   []byte
		text string
	}{
		"flipped bit": {flipped, "has a wrong checksum; copy the file again"},
		"loss only": {
			append(version(), scalar(1, 1, "loss", 2)...),
			"no column of the TensorBoard event file is named",
		},
		"no event": {
			append(version(), record([]byte{0xff, 0xff})...),
			"record 2 of the event file is not an event",
		},
		"no scalar": {version(), "has no numbers"},
	} {
		s, err := read(string(c.in), Want{})
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// FuzzEvents adds valid checksums to its input.
func FuzzEvents(f *testing.F) {
	f.Add(megatronEvents()[len(version()):][12:80], true)
	f.Add(megatronEvents(), false)
	f.Fuzz(func(t *testing.T, in []byte, framed bool) {
		if framed {
			in = append(version(), record(in)...)
		}
		fr, err := readEvents(bytes.NewReader(in))
		checkSentence(t, err)
		if fr != nil {
			_, err = fr.series(Want{})
			checkSentence(t, err)
		}
	})
}
