package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPlace is wrapped where a folder, or what stands in a file's place, can't be used and
// can't be put right by this user.
var ErrPlace = errors.New("can't be used")

const (
	folderPrefix = "falcon-"
	others       = unix.S_IWGRP | unix.S_IWOTH
	claimTries   = 3
)

// FolderName is the folder of a user's files below one that several users share. The
// hook and falcon_torch have the same name.
func FolderName(uid int) string { return folderPrefix + strconv.Itoa(uid) }

// FolderUser is whose folder has this name; false where it is none's.
func FolderUser(name string) (uid int, ok bool) {
	digits, ok := strings.CutPrefix(name, folderPrefix)
	uid, err := strconv.Atoi(digits)
	return uid, ok && err == nil && uid >= 0 && FolderName(uid) == name
}

// Claim returns the folder for this user's files below a shared one: the shared one
// itself where nobody else may write there, else FolderName in it, which is made with
// mode 0700. What stands in its place is removed where this user may; removed has a
// sentence for each thing that was put right. An error wraps ErrPlace and has a remedy.
func Claim(shared string) (folder string, removed []string, err error) {
	var st unix.Stat_t
	if err := unix.Stat(shared, &st); err != nil {
		return "", nil, fmt.Errorf("%s %w: %w; make it, or name another", shared, ErrPlace, err)
	}
	me := os.Geteuid()
	switch open := st.Mode&others != 0; {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "", nil, fmt.Errorf("%s %w: it is no folder; name another", shared, ErrPlace)
	case int(st.Uid) == me && !open:
		return shared, nil, nil
	case st.Uid != 0 && int(st.Uid) != me:
		return "", nil, fmt.Errorf(
			"%s %w: it belongs to user %d, who could replace what lies in it; give it to root with mode 1777, or name another",
			shared, ErrPlace, st.Uid,
		)
	case open && st.Mode&unix.S_ISVTX == 0:
		if err := os.Chmod(shared, os.FileMode(st.Mode&0o777)|os.ModeSticky); err != nil {
			return "", nil, fmt.Errorf(
				"%s %w: everybody may replace what lies in it; as root: chmod +t %s, or name a folder of this user's own",
				shared, ErrPlace, shared,
			)
		}
		removed = append(removed, shared+" let everybody replace what lies in it: it has the sticky bit now")
	}
	folder = filepath.Join(shared, FolderName(me))
	why, err := makeOwn(folder)
	return folder, append(removed, why...), err
}

// makeOwn makes a folder of this user's alone.
func makeOwn(folder string) (removed []string, err error) {
	for range claimTries {
		err = os.Mkdir(folder, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return removed, fmt.Errorf("%s %w: %w", folder, ErrPlace, err)
		}
		if err = takeFolder(folder); err == nil {
			return removed, nil
		}
		what := describePlace(folder)
		if Clear(folder) != nil {
			return removed, fmt.Errorf("%s %w: %s stands there; as root: rm -r %s",
				folder, ErrPlace, what, folder)
		}
		removed = append(removed, fmt.Sprintf(
			"%s stood in the place of the agent's folder %s and was removed",
			what, folder,
		))
	}
	return removed, fmt.Errorf(
		"%s %w: somebody puts something else there again and again; find who, or name another folder",
		folder, ErrPlace,
	)
}

// IsOwnFolder reports whether a folder is this user's and nobody else may write there.
func IsOwnFolder(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(st.Uid) == os.Geteuid() &&
		st.Mode&others == 0
}

// takeFolder has a folder be this user's alone, or fails.
func takeFolder(folder string) error {
	f, err := os.OpenFile(
		folder,
		unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0,
	)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return ErrForeign
	}
	if st.Mode&0o777 == 0o700 {
		return nil
	}
	return unix.Fchmod(int(f.Fd()), 0o700)
}

// ClearPlace has a file's place be free for this user: absent, or a file of its own that
// Read reads. Anything else is removed; what is then a sentence about it. A place that can't
// be cleared is an error that wraps ErrPlace.
func ClearPlace(path string) (what string, err error) {
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err == nil && isOwn(&st):
		return "", nil
	}
	what = describePlace(path)
	if err := Clear(path); err != nil {
		return "", fmt.Errorf("%s %w: %s stands there; as root: rm -r %s", path, ErrPlace, what, path)
	}
	return fmt.Sprintf("%s stood in the place of %s and was removed", what, path), nil
}

// CheckPlace returns why a file of this user's alone can't be kept at a path that somebody
// has named: what stands there, or a folder in which others may replace it.
func CheckPlace(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case err == nil && !isOwn(&st):
		return fmt.Errorf("%s %w: %s stands there; remove it, or name another",
			path, ErrPlace, describePlace(path))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %w: %w; name another", path, ErrPlace, err)
	}
	return checkParent(filepath.Dir(path))
}

// checkParent refuses a folder in which others may replace what lies there.
func checkParent(dir string) error {
	var st unix.Stat_t
	switch err := unix.Stat(dir, &st); {
	case err != nil:
		return fmt.Errorf("%s %w: %w; make it, or name another", dir, ErrPlace, err)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s %w: it belongs to user %d, who could replace what lies in it; name another",
			dir, ErrPlace, st.Uid)
	case st.Mode&others != 0 && st.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("%s %w: others may replace what lies in it: chmod go-w %s, or name another",
			dir, ErrPlace, dir)
	}
	return nil
}

// isOwn reports whether this is a regular file of this user's alone.
func isOwn(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG &&
		int(st.Uid) == os.Geteuid() &&
		st.Mode&0o077 == 0
}

// Clear frees a name at once, whatever has it, and removes what had it.
func Clear(path string) error {
	aside := fmt.Sprintf("%s.aside-%d-%d", path, os.Getpid(), time.Now().UnixNano())
	if err := os.Rename(path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	_ = os.RemoveAll(aside) // what can't be removed is in nobody's way
	return nil
}

// describePlace says what stands somewhere, and whose it is.
func describePlace(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "something that can't be looked at"
	}
	kind := map[uint32]string{
		unix.S_IFREG:  "a file",
		unix.S_IFDIR:  "a folder",
		unix.S_IFLNK:  "a symbolic link",
		unix.S_IFIFO:  "a pipe",
		unix.S_IFSOCK: "a socket",
	}[st.Mode&unix.S_IFMT]
	if kind == "" {
		kind = "a device"
	}
	return fmt.Sprintf("%s of user %d (mode %04o)", kind, st.Uid, st.Mode&0o7777)
}
