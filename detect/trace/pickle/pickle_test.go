package pickle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// pythonSays runs a script of real Python and hands back what it writes.
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
		v, err := Decode(rest[:n])
		if err != nil {
			t.Fatalf("protocol %d: %v", len(decoded), err)
		}
		if !Looks(rest[:n]) {
			t.Errorf("protocol %d is not recognised", len(decoded))
		}
		text, err := JSON(v, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		decoded, out = append(decoded, text), rest[n:]
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
	out := pythonSays(t, `import pickle,sys; sys.stdout.buffer.write(pickle.dumps([b"ab", bytearray(b"c"), {1}, frozenset([2])], 5))`)
	v, err := Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := JSON(v, 100)
	if err != nil || string(text) != `["ab","c",[1],[2]]` {
		t.Errorf("%s %v", text, err)
	}
}

// Everything that would import or call is refused before it has an effect.
func TestRefusesEveryCall(t *testing.T) {
	for op, name := range refused {
		_, err := Decode([]byte{0x80, 4, ')', op, 1, 1, 1, 1, '\n', '\n', '.'})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
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
		if _, err := Decode(rest[:n]); !errors.Is(err, ErrRefused) {
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
			if _, err := JSON(&Dict{[]Pair{{&List{}, nil}}}, 100); !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			continue
		}
		if _, err := Decode([]byte(in)); !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "\n") {
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
	v, err := Decode(append(bomb, '.'))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := JSON(v, 1<<20); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a bomb of shared lists: %v", err)
	}
	if v, err = Decode([]byte("]q\x00h\x00a.")); err != nil {
		t.Fatal(err)
	}
	if _, err := JSON(v, 1<<20); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a list in itself: %v", err)
	}
	if _, err := Decode([]byte("L" + strings.Repeat("9", 1<<20) + "L\n.")); !errors.Is(err, ErrMalformed) {
		t.Errorf("digits: %v", err)
	}
	if _, err := Decode([]byte("\x8b\x00\x00\x10\x00" + strings.Repeat("9", 1<<20) + ".")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long: %v", err)
	}
	for name, unit := range map[string]string{"lists": "]", "dicts": "}", "marks": "(", "numbers": "K\x01", "copies": "2", "memo": "\x94"} {
		in := []byte("]" + strings.Repeat(unit, 4<<20/len(unit)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeWithin(in, 8<<20)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: %d bytes were allocated under a bound of 8 MiB", name, used)
		}
	}
	// A tuple of the whole stack again and again would be quadratic.
	if _, err := decodeWithin([]byte("("+strings.Repeat("K\x01", 10000)+strings.Repeat("t(h\x00", 10)), 1<<20); err == nil {
		t.Error("an endless pickle is taken")
	}
}

// FuzzDecode: no panic, and what decodes can be written out or is refused.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"\x80\x02}(X\x01\x00\x00\x00aq\x00]u.", "(dp0\nS'a'\np1\nI01\ns.", "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.", "cos\nsystem\n(S'x'\ntR."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := decodeWithin(in, 4<<20)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			return
		}
		text, err := JSON(v, 1<<20)
		if err == nil && !json.Valid(text) {
			t.Fatalf("%q", text)
		}
	})
}
