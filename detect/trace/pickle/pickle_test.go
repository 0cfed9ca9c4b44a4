package pickle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// pythonSays runs a Python script and returns its output.
func pythonSays(t *testing.T, script string) []byte {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the round trip with the real pickle is left out")
	}
	out, err := exec.Command(path, "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The real pickle's output in all protocols reads as json.dumps of the same.
func TestRoundTripWithPython(t *testing.T) {
	out := pythonSays(t, `
import json, pickle, sys
shared = ["x", 1]
v = {"version": "2.9", "none": None, "t": True, "f": False, "n": [0, 1, -1, 255, 256, 65535, 65536, 2**31-1, -2**31, 2**31, 2**63-1, -2**63, 2**64+5, -(2**70)],
     "x": [0.0, 1.5, -2.25e-300, 1e308], "text": ["", "a\"b\\c\n\t\x00", "\u20ac \U0001f600", "y" * 300], "l": [[], [[]], {}, [shared, shared]],
     "tuple": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 7: "seven", "big": list(range(3000)), "long": "z" * 70000}
for p in range(6):
    b = pickle.dumps(v, p)
    sys.stdout.buffer.write(b"%d\n" % len(b) + b)
sys.stdout.buffer.write(json.dumps(v).encode())
`)
	var decoded [][]byte
	for range 6 {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		n, err := strconv.Atoi(string(head))
		if err != nil {
			t.Fatal(err)
		}
		v, err := Decode(string(rest[:n]))
		if err != nil {
			t.Fatalf("protocol %d: %v", len(decoded), err)
		}
		if !Looks(rest[:n]) {
			t.Errorf("protocol %d is not recognised", len(decoded))
		}
		text, err := jsonText(v, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		decoded = append(decoded, text)
		out = rest[n:]
	}
	want := plain(t, out)
	for p, text := range decoded {
		if got := plain(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("protocol %d:\n%.300s\nwant\n%.300s", p, text, out)
		}
	}
}

func plain(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return normal(v)
}

// normal makes numbers comparable that are written differently.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return f
		}
		if v == "0" {
			return 0.0
		}
	}
	return v
}

func TestBytesAndSets(t *testing.T) {
	out := pythonSays(
		t,
		`import pickle,sys; sys.stdout.buffer.write(pickle.dumps([b"ab", bytearray(b"c"), {1}, frozenset([2])], 5))`,
	)
	v, err := Decode(string(out))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jsonText(v, 100)
	if err != nil || string(text) != `["ab","c",[1],[2]]` {
		t.Errorf("%s %v", text, err)
	}
}

// Everything that would import or call is refused before it has an effect.
func TestRefusesEveryCall(t *testing.T) {
	for op, name := range refused {
		_, err := Decode("\x80\x04)" + string([]byte{op}) + "\x01\x01\x01\x01\n\n.")
		if !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), name) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := pythonSays(t, `
import collections, datetime, os, pickle, sys
for v in (os.system, collections.OrderedDict(), eval, object(), datetime.datetime(2020, 1, 1), complex(1, 2)):
    for p in range(6):
        b = pickle.dumps({"a": [v]}, p)
        sys.stdout.buffer.write(b"%d\n" % len(b) + b)
`)
	for len(out) > 0 {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		n, err := strconv.Atoi(string(head))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(string(rest[:n])); !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", rest[:n], err)
		}
		out = rest[n:]
	}
}

func TestMalformed(t *testing.T) {
	for name, in := range map[string]string{
		"empty":              "",
		"no stop":            "\x80\x04}",
		"too many":           "}}.",
		"none":               ".",
		"mark alone":         "(.",
		"mark in tuple":      "((\x86.",
		"no mark":            "u.",
		"odd pairs":          "}(K\x01u.",
		"append to a dict":   "}K\x01a.",
		"append to a tuple":  ")K\x01a.",
		"set in a list":      "]K\x01K\x01s.",
		"memo unknown":       "h\x07.",
		"memo line":          "gx\n.",
		"text breaks off":    "X\xff\xff\xff\x7fa.",
		"text of 2^64":       "\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
		"long breaks off":    "\x8b\xff\xff\xff\x7fa.",
		"protocol 9":         "\x80\x09}.",
		"no opcode":          "\x80\x02\xff.",
		"no number":          "Ix\n.",
		"no quotes":          "Sabc\n.",
		"line breaks off":    "I12",
		"key is a container": "",
	} {
		if name == "key is a container" {
			_, err := jsonText(&Dict{[]Pair{{&List{}, nil}}}, 100)
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			continue
		}
		if _, err := Decode(in); !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bombs: lists that hold each other twice, level by level; a list in itself;
// numbers of a million digits; a small pickle that makes millions of values.
func TestBombs(t *testing.T) {
	bomb := []byte("\x80\x02]q\x00")
	for i := range byte(60) {
		bomb = append(bomb, '0', ']', 'q', i+1, '(', 'h', i, 'h', i, 'e')
	}
	v, err := Decode(string(append(bomb, '.')))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, JSON(v, len(bomb))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a bomb of shared lists: %v", err)
	}
	if v, err = Decode("]q\x00h\x00a."); err != nil {
		t.Fatal(err)
	}
	if _, err := jsonText(v, 1<<20); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a list in itself: %v", err)
	}
	if _, err := Decode("L" + strings.Repeat("9", 1<<20) + "L\n."); !errors.Is(err, ErrMalformed) {
		t.Errorf("digits: %v", err)
	}
	if _, err := Decode(
		"\x8b\x00\x00\x10\x00" + strings.Repeat("9", 1<<20) + ".",
	); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long: %v", err)
	}
	if _, err := Decode(
		"X\x01\x00\x10\x00" + strings.Repeat("9", 1<<20+1) + ".",
	); !errors.Is(err, ErrTooLarge) {
		t.Errorf("text: %v", err)
	}
	// A tuple of the whole stack again and again would be quadratic.
	if _, err := Decode("(" + strings.Repeat("K\x01", 10000) + strings.Repeat("t(h\x00", 10)); err == nil {
		t.Error("an endless pickle is taken")
	}
}

// TestMemory compares the counted bytes of each kind of value with the heap, and
// with the limit for the size of the pickle.
func TestMemory(t *testing.T) {
	const size = 256 << 10
	for name, c := range map[string]struct{ before, unit, after string }{
		"lists":           {"", "]", ""},
		"dicts":           {"", "}", ""},
		"marks":           {"", "(", ""},
		"copies":          {"]", "2", ""},
		"memo":            {"]", "\x94", ""},
		"sparse memo":     {"]", "r\x00\xff\x00\x00", ""},
		"small numbers":   {"](", "K\x01", "e."},
		"numbers":         {"](", "M\xff\x7f", "e."},
		"floats":          {"](", "G12345678", "e."},
		"long numbers":    {"](", "\x8a\x09123456781", "e."},
		"longest numbers": {"](", "\x8a\x40" + strings.Repeat("1", 64), "e."},
		"texts":           {"](", "U\x05hello", "e."},
		"empty texts":     {"](", "U\x00", "e."},
		"lines":           {"](", "S'\\x41\\x41'\n", "e."},
		"wide lines":      {"](", "V\xff\xff\n", "e."},
		"pairs":           {"}(", "]]", "u."},
		"tuples":          {")", "\x85", "."},
		"appended":        {"]", "]a", "."},
		"set":             {"}", "K\x01K\x01s", "."},
		"dicts of one":    {"", "}K\x01K\x01s", ""},
		"popped":          {"]", "](0", "."},
		"lists of marks":  {"", "(l", ""},
	} {
		units := (size - len(c.before) - len(c.after)) / len(c.unit)
		m := newMachine(c.before + strings.Repeat(c.unit, units) + c.after)
		if c.unit[0] == 'r' {
			m.in = c.before
			for i := range units { // each under another number
				m.in += fmt.Sprintf("r%c%c%c\x01", i>>14, i>>7&0x7f, i&0x7f)
				if len(m.in) > 1<<16 {
					break
				}
			}
			m.limit = valuesPerByte * len(m.in)
		}
		before := heapNow()
		_, err := m.run()
		used := heapNow() - before
		if err != nil &&
			!errors.Is(err, ErrTooLarge) &&
			!errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if used > int64(m.held)*17/16+1<<16 || m.held > 2*m.limit {
			t.Errorf("%s: %d bytes are held, %d counted, %d allowed", name, used, m.held, m.limit)
		}
		runtime.KeepAlive(m)
	}
}

func heapNow() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// A dump of 300 calls with 30 frames each is below the limits, in all
// protocols and whether its frames are shared or not.
func TestDumpsFit(t *testing.T) {
	out := pythonSays(t, `
import pickle, sys
def frames(): return [{"name": "forward_%d" % i, "filename": "/usr/lib/python3/dist-packages/megatron/core/module_%d.py" % (i % 12), "line": 100 + i} for i in range(30)]
shared = frames()
def entry(i, f): return {"record_id": i, "pg_id": i % 5, "process_group": ["%d" % (i % 5), "TENSOR_MODEL_PARALLEL_GROUP"], "collective_seq_id": i // 3, "p2p_seq_id": 0, "op_id": i,
    "profiling_name": "nccl:all_reduce", "time_created_ns": 1764000000000000000 + i, "frames": f, "input_sizes": [[4096, 1, 512]], "input_dtypes": ["BFloat16"], "output_sizes": [[4096, 1, 512]],
    "output_dtypes": ["BFloat16"], "state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600000, "is_p2p": False}
for p in range(6):
    for f in (frames, lambda: shared, lambda: []):
        b = pickle.dumps({"version": "2.9", "entries": [entry(i, f()) for i in range(300)]}, p)
        sys.stdout.buffer.write(b"%d\n" % len(b) + b)
`)
	for i := 0; len(out) > 0; i++ {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		n, err := strconv.Atoi(string(head))
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(string(rest[:n]))
		v, err := m.run()
		if err != nil || 8*m.held > 7*(m.limit-valuesFree) {
			t.Fatalf("%d: %v, %d of %d bytes", i, err, m.held, m.limit)
		}
		if _, err := jsonText(v, jsonPerByte*n/2); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		out = rest[n:]
	}
}

func jsonText(v any, limit int) ([]byte, error) {
	return io.ReadAll(newJSONReader(v, limit))
}

// FuzzDecode: no panic, and what decodes can be written out or is refused.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"\x80\x02}(X\x01\x00\x00\x00aq\x00]u.",
		"(dp0\nS'a'\np1\nI01\ns.",
		"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.",
		"cos\nsystem\n(S'x'\ntR.",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := Decode(string(in))
		if err != nil {
			if !errors.Is(err, ErrMalformed) &&
				!errors.Is(err, ErrTooLarge) &&
				!errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			return
		}
		text, err := jsonText(v, 1<<20)
		if err == nil && !json.Valid(text) {
			t.Fatalf("%q", text)
		}
	})
}
