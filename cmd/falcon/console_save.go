package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/failslow/falcon/tui"
)

// saverBelow writes what the console copies and exports below a state directory,
// readable by the operator alone. A file of the same name is replaced whole.
func saverBelow(stateDir string) tui.Saver {
	return func(name string, data []byte) (string, error) {
		dir := filepath.Join(stateDir, "exports")
		if name != filepath.Base(name) {
			return "", fmt.Errorf("%q is no file name", name)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		tmp, err := os.CreateTemp(dir, "."+name+".*") // 0600
		if err != nil {
			return "", err
		}
		_, err = tmp.Write(data)
		if closeErr := tmp.Close(); err == nil {
			err = closeErr
		}
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.Rename(tmp.Name(), path)
		}
		if err != nil {
			_ = os.Remove(tmp.Name())
			return "", err
		}
		return path, nil
	}
}
