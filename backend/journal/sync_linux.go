package journal

import (
	"os"
	"syscall"
)

// syncData brings a file's bytes to stable storage; its size does not change.
func syncData(f *os.File) error {
	return syscall.Fdatasync(int(f.Fd()))
}
