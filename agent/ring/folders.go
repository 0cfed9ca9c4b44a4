package ring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/ownfile"
)

// Taken is what stands where a user's folder would be: that user's processes have their
// files in the shared folder itself.
type Taken struct {
	Path string
	Text string // a sentence with a remedy
	Free bool   // no process has a file there: it may be removed
}

// Folders are where hooks put their files: a shared folder itself, and below it the folder
// of each user (see native/hook/folder.c). Those that others may write are left out: no hook
// uses them.
func Folders(shared string) (list []string, taken []Taken, err error) {
	names, err := os.ReadDir(shared)
	if err != nil {
		return nil, nil, fmt.Errorf("ring: cannot list %s: %w", shared, err)
	}
	list = []string{shared}
	for _, n := range names {
		uid, ok := ownfile.FolderUser(n.Name())
		if !ok {
			continue
		}
		path := filepath.Join(shared, n.Name())
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			continue // it has gone
		}
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&(unix.S_IWGRP|unix.S_IWOTH) != 0:
			text := fmt.Sprintf("%s is no folder that only user %d may write: remove it", path, uid)
			taken = append(taken, Taken{path, text, !holdsFiles(path)})
			continue
		case int(st.Uid) != uid:
			text := fmt.Sprintf("%s belongs to user %d: unless that is user %d of a container, remove it",
				path, st.Uid, uid)
			taken = append(taken, Taken{path, text, !holdsFiles(path)})
		}
		if unix.Access(path, unix.R_OK|unix.X_OK) == nil {
			list = append(list, path)
		}
	}
	return list, taken, nil
}

// holdsFiles reports whether hooks' files may lie there.
func holdsFiles(path string) bool {
	names, _ := os.ReadDir(path)
	return slices.ContainsFunc(names, func(n os.DirEntry) bool {
		return strings.HasPrefix(n.Name(), filePrefix)
	})
}

// listFiles are the paths of what may be hooks' files, in a shared folder and those below it.
func listFiles(shared string) (paths []string, err error) {
	folders, _, err := Folders(shared)
	if err != nil {
		return nil, err
	}
	for _, dir := range folders {
		names, err := os.ReadDir(dir)
		if err != nil &&
			!errors.Is(err, fs.ErrNotExist) &&
			!errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("ring: cannot list %s: %w", dir, err)
		}
		for _, n := range names {
			if strings.HasPrefix(n.Name(), filePrefix) {
				paths = append(paths, filepath.Join(dir, n.Name()))
			}
		}
	}
	return paths, nil
}
