package tabletest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// tree makes a folder with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSourcesFollowTheCodeAlone(t *testing.T) {
	sum := func(files map[string]string) string {
		t.Helper()
		v, err := Table{Packages: []string{"a"}}.Sources(tree(t, files))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	base := sum(map[string]string{"a/x.go": "package a\n\nfunc f() int { return 1 }\n"})
	for name, same := range map[string]map[string]string{
		"a comment": {
			"a/x.go": "// Package a.\npackage a\n\n// f is one.\nfunc f() int { return 1 } // so\n",
		},
		"layout":    {"a/x.go": "package a\nfunc  f()  int  {  return  1  }"},
		"a test":    {"a/x.go": "package a\n\nfunc f() int { return 1 }\n", "a/x_test.go": "package a\n"},
		"data":      {"a/x.go": "package a\n\nfunc f() int { return 1 }\n", "a/testdata/y.go": "package y\n"},
		"elsewhere": {"a/x.go": "package a\n\nfunc f() int { return 1 }\n", "b/x.go": "package b\n"},
	} {
		if got := sum(same); got != base {
			t.Errorf("%s changes the hash", name)
		}
	}
	for name, other := range map[string]map[string]string{
		"a number":   {"a/x.go": "package a\n\nfunc f() int { return 2 }\n"},
		"a new file": {"a/x.go": "package a\n\nfunc f() int { return 1 }\n", "a/b/y.go": "package b\n"},
		"a C file":   {"a/x.go": "package a\n\nfunc f() int { return 1 }\n", "a/y.c": "int y;\n"},
		"a name":     {"a/z.go": "package a\n\nfunc f() int { return 1 }\n"},
	} {
		if sum(other) == base {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestStamps(t *testing.T) {
	root := tree(t, map[string]string{
		"docs/tables.txt": "# page part target packages\np.md one x a\n", "a/x.go": "package a\n",
	})
	text, err := Stamp(root, "p.md", "one")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Table{Packages: []string{"a"}}.Sources(root)
	if err != nil || Stamped("Written at noon. "+text+"\n\n| a |") != want || Stamped("nothing") != "" {
		t.Errorf("%q, %v: want %s", text, err, want)
	}
	if _, err := Stamp(root, "p.md", "two"); !errors.Is(err, ErrTables) {
		t.Errorf("a part in no row: %v", err)
	}
	bad := tree(t, map[string]string{"docs/tables.txt": "p.md one\n"})
	if _, err := Tables(bad); !errors.Is(err, ErrTables) {
		t.Errorf("a short row: %v", err)
	}
}
