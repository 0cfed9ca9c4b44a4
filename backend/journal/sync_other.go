//go:build !linux

package journal

import "os"

// syncData brings a file's bytes to stable storage.
func syncData(f *os.File) error { return f.Sync() }
