package relay

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

type head struct {
	Node string `json:"node"`
	N    int    `json:"n"`
}

func sealed(t testing.TB, parts ...[]byte) []byte {
	t.Helper()
	b, err := Encode(head{Node: "n1", N: 7}, parts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := Save(path, sealed(t, []byte("a"), nil, []byte("ccc"))); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	var h head
	parts, err := Load(path, 1000, &h)
	if err != nil ||
		h != (head{"n1", 7}) ||
		len(parts) != 3 ||
		string(parts[2]) != "ccc" ||
		len(parts[1]) != 0 {
		t.Fatalf("%+v %q %v", h, parts, err)
	}
	if _, err := Load(path, 20, &h); !errors.Is(err, ErrDamaged) {
		t.Errorf("larger than allowed: %v", err)
	}
	if _, err := Load(path+"y", 20, &h); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, 1000, &h); !errors.Is(err, ErrDamaged) {
		t.Errorf("readable by others: %v", err)
	}
}

// Every flipped byte and every shorter file is noticed.
func TestDamageIsNoticed(t *testing.T) {
	whole := sealed(t, []byte("abc"), []byte("defg"))
	var h head
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		if _, err := Decode(b, &h); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := Decode(whole[:i], &h); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
}

// A newer agent may have added fields to the head.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	b, err := Encode(map[string]any{"node": "n1", "n": 7, "added_later": []int{1}}, [][]byte{[]byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	var h head
	if parts, err := Decode(b, &h); err != nil || h != (head{"n1", 7}) || len(parts) != 1 {
		t.Fatalf("%+v %q %v", h, parts, err)
	}
	if b, err = Encode(map[string]any{"n": "seven"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(b, &h); !errors.Is(err, ErrDamaged) {
		t.Errorf("a field of another type: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sealed(f, []byte("abc")))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h head
		parts, err := Decode(b, &h)
		n := 0
		for _, p := range parts {
			n += len(p)
		}
		if err != nil && !errors.Is(err, ErrDamaged) || n > len(b) {
			t.Fatalf("%d bytes of parts from %d, %v", n, len(b), err)
		}
		if parts, err := split(b); err == nil && len(parts) == 0 {
			t.Fatal("no head and no error")
		}
	})
}
