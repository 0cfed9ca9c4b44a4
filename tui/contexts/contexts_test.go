package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const whole = `
current = "prod-a"
[contexts.prod-a]
address = "engine-a:7777"
ca = "/c/ca.pem"
cert = "/c/m.pem"
key = "/c/m-key.pem"
[contexts.here]
address = "/run/falcon/falcon.sock"
`

func TestParse(t *testing.T) {
	f, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Names(), " "); got != "here prod-a" || f.Current != "prod-a" {
		t.Errorf("%s, current %s", got, f.Current)
	}
	if c, ok := f.Find("prod-a"); !ok || c.Cert != "/c/m.pem" || c.IsSocket() {
		t.Errorf("%+v", c)
	}
}

// What is wrong is said in one sentence.
func TestWrongFiles(t *testing.T) {
	for text, want := range map[string]string{
		"[contexts.a]\naddress=\"/x\"\nport=3":                          `no setting "contexts.a.port"`,
		"colour = 1":                                                    `no setting "colour"`,
		"[contexts.a]":                                                  "has no address",
		"[contexts.\"a b\"]\naddress=\"/x\"":                            "no name of a context",
		"[contexts.\"\\u001b[2J\"]\naddress=\"/x\"":                     "no name of a context",
		"[contexts.a]\naddress=\"h:1\"":                                 "set ca, cert and key",
		"[contexts.a]\naddress=\"h:1\"\nca=\"a\"\ncert=\"b\"":           "set ca, cert and key",
		"[contexts.a]\naddress=\":1\"\nca=\"a\"\ncert=\"b\"\nkey=\"c\"": "write HOST:PORT",
		"[contexts.a]\naddress=\"/x\"\nca=\"a\"":                        "needs no certificates",
		"[contexts.a]\naddress=\"/x y\"":                                "is no address",
		"current = \"b\"\n[contexts.a]\naddress=\"/x\"":                 `there are a`,
		"current = [1]":                                                 "current",
		"[contexts":                                                     "line 1",
	} {
		_, err := Parse([]byte(text))
		if err == nil ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A file that others may read or write is refused; one that is missing says nothing.
func TestModeAndPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "falcon", "contexts.toml")
	if f, err := Load(path); err != nil || len(f.Contexts) != 0 {
		t.Errorf("missing: %v, %v", f, err)
	}
	f, err := File{}.Add(Context{Name: "a", Address: "/x"}, false)
	if err == nil {
		err = f.Save(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := Load(path); err != nil || len(got.Contexts) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !errors.Is(err, ErrContexts) || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	env := map[string]string{"HOME": "/home/m", "FALCON_CONSOLE_CONFIG": "/elsewhere/console.toml"}
	if got := Path(func(k string) string { return env[k] }); got != "/home/m/.config/falcon/contexts.toml" {
		t.Error(got)
	}
	env[Env] = "/x/c.toml"
	if got := Path(func(k string) string { return env[k] }); got != "/x/c.toml" {
		t.Error(got)
	}
	if err := f.Save(""); err == nil || Path(func(string) string { return "" }) != "" {
		t.Errorf("without a home: %v", err)
	}
}

func TestAddUseRemove(t *testing.T) {
	f, err := File{}.Add(Context{Name: "a", Address: "/x"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Add(Context{Name: "a", Address: "/y"}, false); err == nil ||
		!strings.Contains(err.Error(), "--replace") {
		t.Errorf("%v", err)
	}
	if same, err := f.Add(Context{Name: "a", Address: "/x"}, false); err != nil || len(same.Contexts) != 1 {
		t.Errorf("the same again: %v", err)
	}
	f, _ = f.Add(Context{Name: "a", Address: "/y"}, true)
	if f.Contexts[0].Address != "/y" {
		t.Errorf("%+v", f)
	}
	if _, err := f.Use("b"); err == nil || !strings.Contains(err.Error(), "there are a") {
		t.Errorf("%v", err)
	}
	f, _ = f.Use("a")
	if gone, err := f.Remove("a"); err != nil || gone.Current != "" || len(gone.Contexts) != 0 {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := f.Remove("b"); err == nil {
		t.Error("b was removed")
	}
	if _, err := f.Choose([]string{"a", "a", "nope"}); err == nil {
		t.Error("nope was found")
	}
	for range most {
		if f, err = f.Add(
			Context{
				Name: "n" +
					strings.Repeat("x", len(f.Contexts)%30) +
					string(rune('a'+len(f.Contexts)%26)) +
					strings.Repeat("y", len(f.Contexts)/26),
				Address: "/x",
			},
			true,
		); err != nil {
			break
		}
	}
	if len(f.Contexts) > most {
		t.Errorf("%d contexts", len(f.Contexts))
	}
}

// What is written is read back as it was.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := File{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			c := Context{
				Name:    rapid.StringMatching(`[a-z0-9_][a-zA-Z0-9._-]{0,20}`).Draw(t, "name"),
				Address: "/" + rapid.StringMatching(`[!-~]{1,30}`).Draw(t, "path"),
			}
			if rapid.Bool().Draw(t, "tls") {
				file := rapid.StringN(1, 10, 20)
				c.Address = "host.example:7777"
				c.CA = file.Draw(t, "ca")
				c.Cert = file.Draw(t, "cert")
				c.Key = file.Draw(t, "key")
			}
			next, err := f.Add(c, true)
			if err != nil {
				t.Fatal(err)
			}
			f = next
			if rapid.Bool().Draw(t, "use") {
				f, _ = f.Use(c.Name)
			}
		}
		back, err := Parse(f.Text())
		if err != nil ||
			back.Current != f.Current ||
			len(back.Contexts) != len(f.Contexts) {
			t.Fatalf("%v: %s", err, f.Text())
		}
		for i := range f.Contexts {
			if back.Contexts[i] != f.Contexts[i] {
				t.Fatalf("%+v became %+v", f.Contexts[i], back.Contexts[i])
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		if _, err := Parse(file.Text()); err != nil {
			t.Errorf("%q is read and its text is not: %v", text, err)
		}
	})
}
