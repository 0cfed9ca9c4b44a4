package peek

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of one read.
const (
	LinesMost     = 200 // lines of one file
	linesDefault  = 20
	tailBytesMost = 1 << 18 // read from the end of one file
)

// identity is a file, whatever its path.
type identity struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// errType is returned for what is no regular file.
var errType = errors.New("is not a regular file")

// openRegular opens a file for reading if it is a regular one of this user. It is looked at
// before it is opened, as opening a pipe or a device may have effects, and what was looked
// at is what is opened.
func openRegular(path string, uid int, follow bool) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	at, err := unix.Open(path, flags, 0)
	if err != nil {
		return nil, st, err
	}
	defer unix.Close(at)
	if err := unix.Fstat(at, &st); err != nil {
		return nil, st, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, st, fmt.Errorf("%w but %s", errType, typeName(st.Mode))
	case int(st.Uid) != uid:
		return nil, st, fmt.Errorf("belongs to user %d and the process to user %d: it is not read",
			st.Uid, uid)
	}
	fd, err := unix.Open(
		"/proc/self/fd/"+strconv.Itoa(at),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY,
		0,
	)
	if err != nil {
		return nil, st, err
	}
	return os.NewFile(uintptr(fd), path), st, nil
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR:
		return "a device or terminal"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFDIR:
		return "a folder"
	}
	return "something else"
}

// readTail reads the last lines of an open file.
func readTail(f *os.File, size int64, lines int) (out []string, note string, err error) {
	begin := max(0, size-tailBytesMost)
	buf := make([]byte, min(size, tailBytesMost))
	n, err := f.ReadAt(buf, begin)
	if n == 0 && err != nil && size > 0 {
		if again, e := f.Stat(); e == nil && again.Size() < size {
			return nil, "the file was cut short while it was read: try again", nil
		}
		return nil, "", err
	}
	buf = bytes.TrimRight(buf[:n], "\n\x00") // zeros: a hole that a cut file leaves
	raw := bytes.Split(buf, []byte{'\n'})
	if begin > 0 && len(raw) > 1 {
		raw = raw[1:] // its begin is not known
	} else if begin > 0 {
		note = fmt.Sprintf("the last line is longer than %d KiB: its end is shown", tailBytesMost>>10)
	}
	for _, l := range raw[max(0, len(raw)-wanted(lines)):] {
		out = append(out, cleanLine(l))
	}
	if len(buf) == 0 {
		out = nil
	}
	return out, note, nil
}

func wanted(lines int) int {
	if lines <= 0 {
		return linesDefault
	}
	return min(lines, LinesMost)
}

// tailOf is the last lines of a file, or why there are none. was is the file that the
// process had, zero where that is not known.
func tailOf(source, path, shown string, uid, lines int, follow bool, was identity) *falconv1.PeekPart {
	part := &falconv1.PeekPart{Source: source, Path: printable(shown)}
	f, st, err := openRegular(path, uid, follow)
	if err != nil {
		part.Note = whyNot(err, st)
		return part
	}
	defer f.Close()
	part.Bytes, part.ChangedUnixNs = st.Size, st.Mtim.Nano()
	part.Lines, part.Note, err = readTail(f, st.Size, lines)
	switch {
	case err != nil:
		part.Note = "can't be read: " + plainError(err)
	case was != identity{} && was != identityOf(st):
		part.Note = joinNotes(
			"the file was replaced since the process began: these lines may be another's",
			part.Note,
		)
	case st.Size == 0:
		part.Note = "nothing was printed"
	}
	return part
}

func identityOf(st unix.Stat_t) identity {
	return identity{st.Dev, st.Ino}
}

func joinNotes(first, second string) string {
	if second == "" {
		return first
	}
	return first + "; " + second
}

func whyNot(err error, st unix.Stat_t) string {
	switch {
	case errors.Is(err, errType) &&
		(st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK):
		return err.Error() +
			" to whoever started the process: name the file that keeps it with logs.files in the agent's configuration"
	case errors.Is(err, fs.ErrPermission):
		return "the agent may not read it: run the agent as the process's user, or as root"
	case errors.Is(err, fs.ErrNotExist):
		return "is not there any more"
	case errors.Is(err, unix.ELOOP):
		return "is a symbolic link: it is not followed"
	}
	return plainError(err)
}

// plainError is the reason alone, without operation and path.
func plainError(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}
