// Package version names this build and the formats that it shares with other programs,
// so that both ends of a mismatch can say them. It reads the executable once and holds
// no state beside that.
package version

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// stamp is set by the linker (Makefile): what `git describe` says of the tree.
var stamp string

const (
	commitChars = 12
	buildChars  = 10
	noteHead    = 12 // bytes of an ELF note before its name
)

// Own names this build, never empty and never "devel": the tree's tag or commit, or the
// version of the module, or the identity of the executable.
var Own = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	if v := nameBuild(stamp, info); v != "" {
		return v
	}
	return nameExecutable()
})

func nameBuild(stamp string, info *debug.BuildInfo) string {
	if stamp != "" || info == nil {
		return stamp
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(commitChars, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}

// nameExecutable is of a build that no commit is known of: equal for equal programs.
func nameExecutable() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown-build"
	}
	if id := readBuildID(path); id != "" {
		return "build-" + id
	}
	if id := hashFile(path); id != "" {
		return "build-" + id
	}
	return "unknown-build"
}

// readBuildID is the content's part of Go's build id, "" where the file has none.
func readBuildID(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	section := f.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	if err != nil || len(note) < noteHead {
		return ""
	}
	begin := uint64(noteHead) + uint64(binary.NativeEndian.Uint32(note))
	end := begin + uint64(binary.NativeEndian.Uint32(note[4:]))
	if end > uint64(len(note)) || begin > end {
		return ""
	}
	text := string(note[begin:end])
	text = text[strings.LastIndexByte(text, '/')+1:]
	return text[:min(buildChars, len(text))]
}

func hashFile(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))[:buildChars]
}

// Format is one shape that this program shares with other processes, or with itself of
// another release by way of a file.
type Format struct {
	Name   string // "hook", "agents", "journal", ...
	Number uint32 // that it writes
	Oldest uint32 // that it still reads
}

func (f Format) String() string {
	if f.Oldest == f.Number {
		return fmt.Sprintf("%s %d", f.Name, f.Number)
	}
	return fmt.Sprintf("%s %d (reads from %d)", f.Name, f.Number, f.Oldest)
}

// Describe is what `version` prints of a program.
func Describe(program string, formats []Format) string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.String()
	}
	return fmt.Sprintf("%s %s\nformats: %s\n", program, Own(), strings.Join(names, ", "))
}
