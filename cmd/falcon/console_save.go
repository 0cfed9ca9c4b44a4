package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/failslow/falcon/tui"
)

// namesMost bounds how many exports of one name are kept.
const namesMost = 999

// saverBelow writes what the console copies and exports below a state directory,
// readable by the operator alone. Nothing is replaced: incidents of two jobs have the same
// numbers. A name that is taken gets a number: INC-0001.md, INC-0001-2.md.
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
		path := ""
		if err == nil {
			path, err = reserveName(dir, name)
		}
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

// reserveName makes an empty file of a name that was free, and returns its path.
func reserveName(dir, name string) (string, error) {
	kind := filepath.Ext(name)
	stem := strings.TrimSuffix(name, kind)
	for n := 1; n <= namesMost; n++ {
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return path, f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		name = fmt.Sprintf("%s-%d%s", stem, n+1, kind)
	}
	return "", fmt.Errorf("%s holds %d exports of %s%s: move some away", dir, namesMost, stem, kind)
}
