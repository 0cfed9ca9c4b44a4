package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrFolder is wrapped where others have a say in a folder or a file that decides who
// comes in.
var ErrFolder = errors.New("auth: others have a say there")

// OwnFolder makes a folder with mode 0700 where it is missing, and refuses one that belongs
// to another user than this one or root, or that others may write.
func OwnFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no folder; remove it, or name another", ErrFolder, path)
	}
	return checkHands(path, info)
}

// OwnPlace refuses what stands at a path and is not this user's or root's, may be written
// by others, or is neither a file nor a folder. Nothing there is fine.
func OwnPlace(path string) error {
	link, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = checkOwner(path, link)
	}
	info := link
	if err == nil {
		info, err = os.Stat(path)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%w: %s is neither a file nor a folder; remove it", ErrFolder, path)
	}
	return checkHands(path, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if me := os.Geteuid(); ok && st.Uid != 0 && int(st.Uid) != me {
		return fmt.Errorf(
			"%w: %s belongs to user %d, who would decide who may use this engine; look at what lies there, then chown it to user %d, or name another",
			ErrFolder, path, st.Uid, me,
		)
	}
	return nil
}

// checkHands refuses what others own or may write.
func checkHands(path string, info fs.FileInfo) error {
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf(
			"%w: others may write %s, and so decide who may use this engine; look at what lies there, then chmod go-w it",
			ErrFolder, path,
		)
	}
	return nil
}
