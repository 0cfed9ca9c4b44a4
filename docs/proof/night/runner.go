package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// need is something that a play can't do without.
type need struct {
	what   string   // in words, where it may be absent
	remedy string   // for whom it is absent
	make   string   // target that makes it; "" = it is looked for
	ask    []string // command that prints where it is, and nothing where it is not
	as     string   // variable that has the answer
}

var needs = map[string]need{
	"build":  {make: "build"},
	"native": {make: "native"},
	"torch": {
		what:   "torch",
		remedy: "set FALCON_PYTHON, or run make python-torch",
		ask:    []string{".ci/python", "which"},
		as:     "TORCH",
	},
	"trainers": {
		what:   "the trainers' packages",
		remedy: "they come from PyPI",
		ask:    []string{".ci/python", "trainers"},
		as:     "TRAINERS",
	},
	"frameworks": {
		what:   "the frameworks' packages",
		remedy: "they come from PyPI",
		ask:    []string{".ci/python", "frameworks"},
		as:     "FRAMEWORKS",
	},
	"namespace": {
		what:   "root, ip and iptables",
		remedy: "a network namespace is made with them",
		ask:    []string{"bash", "-c", `[ "$(id -u)" != 0 ] || { command -v ip && command -v iptables; } || true`},
		as:     "NAMESPACE_TOOLS",
	},
}

// runner plays in one tree. What was made or found is not made or asked for again.
type runner struct {
	root string
	made map[string]bool
	env  map[string]string // answers by variable
}

func newRunner(root string) *runner {
	return &runner{root: root, made: map[string]bool{}, env: map[string]string{}}
}

// places are where a play writes.
type places struct {
	pages, results string
	night          bool
}

// here is where plays write that are played alone.
func (r *runner) here() places {
	return places{
		pages:   cmp.Or(os.Getenv("PAGES"), r.path("docs")),
		results: cmp.Or(os.Getenv("RESULTS"), r.path("bin")),
	}
}

// path is one in the tree, absolute: plays change folders.
func (r *runner) path(elements ...string) string {
	abs, err := filepath.Abs(filepath.Join(append([]string{r.root}, elements...)...))
	if err != nil {
		return filepath.Join(r.root, filepath.Join(elements...))
	}
	return abs
}

// play plays one, with what it prints going to out. What it needs and is not there is returned.
func (r *runner) play(p play, out io.Writer, at places) (missing string, err error) {
	for _, n := range p.Needs {
		if missing, err = r.settle(n, out); missing != "" || err != nil {
			return missing, err
		}
	}
	c := r.command(out, "bash", "-c", p.script(at.night))
	c.Env = append(c.Env, "PAGES="+at.pages, "RESULTS="+at.results)
	return "", c.Run()
}

// settle makes what a play needs, or looks for it.
func (r *runner) settle(name string, out io.Writer) (missing string, err error) {
	n := needs[name]
	if n.make != "" {
		if r.made[name] {
			return "", nil
		}
		r.made[name] = true
		return "", r.command(out, "make", n.make).Run()
	}
	answer, asked := r.env[n.as]
	if !asked {
		var b bytes.Buffer
		c := r.command(&b, n.ask[0], n.ask[1:]...)
		c.Stderr = out
		if err := c.Run(); err != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(n.ask, " "), err)
		}
		answer = strings.TrimSpace(b.String())
		r.env[n.as] = answer
	}
	if answer == "" {
		return fmt.Sprintf("it needs %s: %s", n.what, n.remedy), nil
	}
	return "", nil
}

// ofMake are variables by which make talks to a make that it has started.
var ofMake = []string{"MAKEFLAGS=", "MAKELEVEL=", "MFLAGS="}

// command is one in the root of the tree, which reads nothing.
func (r *runner) command(out io.Writer, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = r.root
	c.Stdout, c.Stderr = out, out
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(ofMake, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	for name, value := range r.env {
		c.Env = append(c.Env, name+"="+value)
	}
	return c
}
