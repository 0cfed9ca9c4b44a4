package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// keptOutput keeps what a rank prints in a file, as a launcher does. A disk that is full
// costs the lines alone.
type keptOutput struct{ file *os.File }

// keepOutput opens the file of a process's output.
func keepOutput(l *Lab, p *rankProcess) keptOutput {
	f, err := l.openLogFile(fmt.Sprintf("rank-%d.%d.out", p.rank, p.generation))
	if err != nil {
		return keptOutput{}
	}
	return keptOutput{f}
}

func (k keptOutput) Write(b []byte) (int, error) {
	if k.file != nil {
		_, _ = k.file.Write(b)
	}
	return len(b), nil
}

func (k keptOutput) Close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}

// outputPattern is where an agent finds a rank's output, by the rank's environment.
func outputPattern(dir string) string { return filepath.Join(dir, "logs", "rank-{RANK}.*.out") }
