package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/failslow/falcon/detect/autopsy/read"
)

// Bounds of what is read.
const (
	filesMost    = 20_000
	nestedMost   = 4         // archives within archives
	memberMemory = 256 << 20 // bytes of an archive's member, or of standard input
	unpackedMost = 16 << 30  // bytes of all members together: a small archive may hold any number
	zstdMemory   = 64 << 20
)

// inputs gives files, folders, archives and standard input to a set, file by file.
type inputs struct {
	set      *read.Set
	stdin    io.Reader
	files    int
	unpacked int64
}

// add reads one path of the command line. Only a path that does not exist is an error.
func (in *inputs) add(name string) error {
	if name == "-" {
		return in.stream("standard input", in.stdin, 0)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		in.file(name)
		return nil
	}
	return filepath.WalkDir(name, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			in.set.Refuse(at, err.Error())
			return nil
		case d.IsDir():
			return nil
		}
		in.file(at)
		return nil
	})
}

// file reads one file of the disk.
func (in *inputs) file(name string) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		in.set.Refuse(name, err.Error())
		return
	case !info.Mode().IsRegular():
		in.set.Refuse(name, "it is no regular file")
		return
	}
	if in.files++; in.files > filesMost {
		if in.files == filesMost+1 {
			in.set.Refuse(name, fmt.Sprintf("more than %d files: this one and later ones were not read",
				filesMost))
		}
		return
	}
	file, err := os.Open(name)
	if err != nil {
		in.set.Refuse(name, err.Error())
		return
	}
	defer file.Close()
	head, err := bufio.NewReader(file).Peek(headOfArchive)
	if err != nil && !errors.Is(err, io.EOF) {
		in.set.Refuse(name, err.Error())
		return
	}
	if packing(name, head) == "" {
		in.set.Add(name, func() (io.ReadCloser, error) {
			file, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			return watched(file, name), nil
		})
		return
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		in.set.Refuse(name, err.Error())
		return
	}
	if err := in.unpack(name, head, file, info.Size(), 0); err != nil {
		in.set.Refuse(name, err.Error())
	}
}

const headOfArchive = 512

// packing is how a file is packed, by its first bytes, "" where it is not.
func packing(name string, head []byte) string {
	for _, p := range []struct{ magic, name string }{
		{"\x1f\x8b", "gzip"},
		{"\x28\xb5\x2f\xfd", "zstd"},
		{"PK\x03\x04", "zip"},
		{"BZh", "bzip2"},
		{"\xfd7zXZ\x00", "xz"},
	} {
		if bytes.HasPrefix(head, []byte(p.magic)) {
			return p.name
		}
	}
	if len(head) >= headOfArchive && string(head[257:262]) == "ustar" ||
		strings.HasSuffix(name, ".tar") && len(head) >= headOfArchive {
		return "tar"
	}
	return ""
}

// unpack reads what is packed in r.
func (in *inputs) unpack(name string, head []byte, r io.Reader, size int64, depth int) error {
	if depth > nestedMost {
		return fmt.Errorf("more than %d archives within each other", nestedMost)
	}
	switch packing(name, head) {
	case "gzip":
		plain, err := gzip.NewReader(r)
		if err != nil {
			return errors.New("the gzip header is broken")
		}
		return in.stream(strings.TrimSuffix(name, ".gz"), plain, depth+1)
	case "zstd":
		plain, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(zstdMemory), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return errors.New("the zstd header is broken")
		}
		defer plain.Close()
		return in.stream(strings.TrimSuffix(name, ".zst"), plain, depth+1)
	case "bzip2":
		return in.stream(
			strings.TrimSuffix(name, ".bz2"),
			bzip2.NewReader(r),
			depth+1,
		)
	case "tar":
		return in.tar(name, r, depth)
	case "zip":
		return in.zip(name, r, size, depth)
	}
	return errors.New("it is compressed with xz; decompress it first: xz -d FILE")
}

// stream reads what can be read once: it is held in memory, up to a bound.
func (in *inputs) stream(name string, r io.Reader, depth int) error {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(headOfArchive)
	if err != nil &&
		!errors.Is(err, io.EOF) &&
		!errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if packing(name, head) != "" {
		return in.unpack(name, head, buffered, -1, depth)
	}
	data, err := io.ReadAll(io.LimitReader(buffered, memberMemory+1))
	in.unpacked += int64(len(data))
	switch {
	case in.unpacked > unpackedMost:
		return errors.New("the archives hold too much; unpack them and give a part")
	case len(data) > memberMemory:
		return fmt.Errorf("it has more than %d MiB unpacked; unpack it and give the file", memberMemory>>20)
	case err != nil && len(data) == 0:
		return err
	}
	in.set.Add(name, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	})
	if err != nil { // what came before the break was read
		in.set.Refuse(name, "the packed data is broken or ends early: what came before was read")
	}
	return nil
}

func (in *inputs) tar(name string, r io.Reader, depth int) error {
	members := tar.NewReader(r)
	for {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("the archive is broken or ends early: what came before was read")
		}
		if h.Typeflag == tar.TypeReg &&
			!in.member(path.Join(name, path.Clean("/"+h.Name)), members, depth) {
			return nil
		}
	}
}

// zip needs its end first: an archive within another is held in memory.
func (in *inputs) zip(name string, r io.Reader, size int64, depth int) error {
	at, ok := r.(io.ReaderAt)
	if !ok || size < 0 {
		data, err := io.ReadAll(io.LimitReader(r, memberMemory))
		if err != nil {
			return err
		}
		at = bytes.NewReader(data)
		size = int64(len(data))
	}
	archive, err := zip.NewReader(at, size)
	if err != nil {
		return errors.New("the zip archive is broken")
	}
	for _, f := range archive.File {
		if f.FileInfo().IsDir() {
			continue
		}
		member, err := f.Open()
		if err != nil {
			in.set.Refuse(path.Join(name, f.Name), err.Error())
			continue
		}
		more := in.member(path.Join(name, path.Clean("/"+f.Name)), member, depth)
		member.Close()
		if !more {
			return nil
		}
	}
	return nil
}

// member reads one member of an archive; it reports whether more may be read.
func (in *inputs) member(name string, r io.Reader, depth int) bool {
	if in.files++; in.files > filesMost {
		in.set.Refuse(name, fmt.Sprintf("more than %d files: this one and later ones were not read",
			filesMost))
		return false
	}
	if err := in.stream(name, r, depth+1); err != nil {
		in.set.Refuse(name, err.Error())
	}
	return in.unpacked <= unpackedMost
}
