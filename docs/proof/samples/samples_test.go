package samples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// A new rank metric, action field and agent command touch no more hand-written files than
// CONTRIBUTING.md says, and arrive.
func TestSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the engine, the agent and the console again")
	}
	for _, s := range each(t) {
		t.Run(s.name, func(t *testing.T) {
			overlay := s.overlay(t)
			for _, test := range s.Tests {
				args := append([]string{"test", "-vet=off", "-overlay", overlay, test[0], "-run"}, test[1:]...)
				cmd := exec.Command("go", args...)
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Contains(string(out), "no tests to run") {
					t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
		})
	}
}

// What each sample changes is still there, and not more than it says.
func TestSamplesFit(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range each(t) {
		if n := len(s.Written()); n > s.Most || s.Most == 0 {
			t.Errorf("%s touches %d files, %d are allowed: %v", s.name, n, s.Most, s.Written())
		}
		for _, path := range s.Written() {
			if !strings.Contains(string(guide), "`"+path+"`") {
				t.Errorf("CONTRIBUTING.md does not name %s, which %s touches", path, s.name)
			}
		}
	}
}

type named struct {
	*Sample
	name string
}

func each(t *testing.T) []named {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) != 3 {
		t.Fatalf("%d samples, %v", len(paths), err)
	}
	var out []named
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Read(root, text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, named{s, strings.TrimSuffix(filepath.Base(path), ".txt")})
	}
	return out
}

// overlay writes the files of a sample, and the list that has the go command take them.
func (s named) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := map[string]string{}
	enter := func(path, text string) {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		whole, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		list[whole] = file
	}
	for path, text := range s.Files {
		enter(path, text)
	}
	code, err := s.Generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if code != "" {
		enter(protoRoot+"/falcon/v1/falcon.pb.go", code)
	}
	b, err := json.Marshal(map[string]any{"Replace": list})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
