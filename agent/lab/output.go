package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/failslow/falcon/agent/internal/ownfile"
)

// keptMost is how many bytes of a rank's output are kept in one file. What came first stays
// in a second file of that size.
const keptMost = 1 << 20

// keptOutput keeps what a rank prints in a file, as a launcher does. The file is bounded: when
// it is full its older half goes, and the first time the whole file is kept under another name.
// A disk that is full costs the lines alone.
type keptOutput struct {
	file *os.File
	size int // of the file
}

// keepOutput opens the file of a process's output.
func keepOutput(l *Lab, p *rankProcess) *keptOutput {
	f, err := l.openLogFile(fmt.Sprintf("rank-%d.%d.out", p.rank, p.generation))
	if err != nil {
		return &keptOutput{}
	}
	k := &keptOutput{file: f}
	if info, err := f.Stat(); err == nil { // a process of this rank and generation was there before
		k.size = int(info.Size())
	}
	return k
}

// Write takes all of b, whatever the disk does.
func (k *keptOutput) Write(b []byte) (int, error) {
	if k.file == nil {
		return len(b), nil
	}
	if k.size > 0 && k.size+len(b) > keptMost {
		k.dropOlder()
	}
	n, _ := k.file.Write(b)
	k.size += n
	return len(b), nil
}

// dropOlder puts the newer half of the file in its place. Readers see one or the other.
func (k *keptOutput) dropOlder() {
	name := k.file.Name()
	old, err := os.ReadFile(name)
	if err != nil {
		return
	}
	_ = os.Link(name, firstOutput(name)) // there already: it has what came first
	rest := old[len(old)/2:]
	if at := bytes.IndexByte(rest, '\n'); at >= 0 {
		rest = rest[at+1:]
	}
	note := fmt.Sprintf("falcon lab: %d bytes were left out here; the first ones are in %s\n",
		len(old)-len(rest), filepath.Base(firstOutput(name)))
	kept := append([]byte(note), rest...)
	if ownfile.Replace(name, kept) != nil {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_ = k.file.Close()
	k.file = f
	k.size = len(kept)
}

// firstOutput is where the first part of an output stays: agents don't look there.
func firstOutput(name string) string {
	return strings.TrimSuffix(name, ".out") + ".first"
}

func (k *keptOutput) Close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}

// outputPattern is where an agent finds a rank's output, by the rank's environment.
func outputPattern(dir string) string {
	return filepath.Join(dir, "logs", "rank-{RANK}.*.out")
}
