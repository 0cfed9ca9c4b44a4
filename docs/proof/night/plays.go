package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// play is one entry of .ci/plays.toml, which says what its keys mean.
type play struct {
	Name  string
	About string
	Needs []string
	Set   map[string]string
	Night map[string]string
	Run   string
}

const playsFile = ".ci/plays.toml"

var playName = regexp.MustCompile(`^[a-z0-9-]+$`)

// readPlays reads the plays and refuses what can't be meant.
func readPlays(root string) ([]play, error) {
	var file struct{ Play []play }
	text, err := os.ReadFile(filepath.Join(root, playsFile))
	if err != nil {
		return nil, err
	}
	meta, err := toml.Decode(string(text), &file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", playsFile, err)
	}
	if odd := meta.Undecoded(); len(odd) > 0 {
		return nil, fmt.Errorf("%s: %s is no key of a play", playsFile, odd[0])
	}
	seen := map[string]bool{}
	for _, p := range file.Play {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: play %q: %w", playsFile, p.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("%s: two plays are named %q", playsFile, p.Name)
		}
		seen[p.Name] = true
	}
	return file.Play, nil
}

func (p *play) check() error {
	switch {
	case !playName.MatchString(p.Name):
		return fmt.Errorf("a name has small letters, digits and dashes")
	case strings.TrimSpace(p.Run) == "":
		return fmt.Errorf("it runs nothing")
	}
	for _, n := range p.Needs {
		if _, known := needs[n]; !known {
			return fmt.Errorf("it needs %q, which is none of %s",
				n, strings.Join(slices.Sorted(maps.Keys(needs)), ", "))
		}
	}
	for name := range p.Night {
		if _, set := p.Set[name]; !set {
			return fmt.Errorf("the night sets %s, which is no setting of it", name)
		}
	}
	return nil
}

// wants is what is looked for, in words.
func (p *play) wants() string {
	var list []string
	for _, n := range p.Needs {
		if what := needs[n].what; what != "" {
			list = append(list, what)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; skipped without " + strings.Join(list, " and ")
}

// script is what bash is given: settings first, those of the environment before the defaults.
func (p *play) script(night bool) string {
	var b strings.Builder
	b.WriteString("set -euo pipefail\n")
	for _, name := range slices.Sorted(maps.Keys(p.Set)) {
		fmt.Fprintf(&b, ": \"${%s=%s}\"\n", name, p.Set[name])
		if value, given := p.Night[name]; given && night {
			fmt.Fprintf(&b, "%s=\"%s\"\n", name, value)
		}
	}
	b.WriteString(p.Run)
	return b.String()
}
