package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The head file holds the head twice, in slots of one disk sector each that are
// written in turn: a write that is torn leaves the other slot whole. A slot:
// magic (8) · counter (8) · format (4) · seq (8) · hash (32) · SHA-256 of these.
const (
	anchorMagic = "falconhd"
	slotBytes   = 512
	slotUsed    = len(anchorMagic) + 8 + 4 + 8 + sha256.Size
)

// anchorPath is the head file of a journal: journal.head of journal.db.
func anchorPath(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".head"
}

// anchor is an open head file.
type anchor struct {
	file    *os.File
	counter uint64
	head    Head
	sync    bool
}

func encodeSlot(counter uint64, h Head) []byte {
	b := make([]byte, 0, slotBytes)
	b = append(b, anchorMagic...)
	b = binary.BigEndian.AppendUint64(b, counter)
	b = binary.BigEndian.AppendUint32(b, Version)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = append(b, h.Hash[:]...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)[:slotBytes]
}

// decodeSlot reads one slot; false for one that is not whole.
func decodeSlot(b []byte) (counter uint64, version uint32, h Head, ok bool) {
	if len(b) < slotUsed+sha256.Size || string(b[:len(anchorMagic)]) != anchorMagic {
		return 0, 0, h, false
	}
	sum := sha256.Sum256(b[:slotUsed])
	if !bytes.Equal(sum[:], b[slotUsed:slotUsed+sha256.Size]) {
		return 0, 0, h, false
	}
	b = b[len(anchorMagic):]
	h.Seq = binary.BigEndian.Uint64(b[12:])
	copy(h.Hash[:], b[20:])
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), h, true
}

// decodeAnchor finds the newest whole slot.
func decodeAnchor(b []byte) (counter uint64, h Head, err error) {
	found := false
	for at := 0; at+slotBytes <= len(b) && at < 2*slotBytes; at += slotBytes {
		c, version, head, ok := decodeSlot(b[at : at+slotBytes])
		if !ok || found && c <= counter {
			continue
		}
		if version > Version {
			return 0, h, fmt.Errorf(
				"%w: its head file has format %d and this falcon knows %d; use that falcon or a newer one",
				ErrNewer, version, Version,
			)
		}
		counter = c
		h = head
		found = true
	}
	if !found {
		return 0, h, fmt.Errorf(
			"%w: the head file holds no whole head; falcon journal repair writes it again from an unbroken journal",
			ErrCorrupt,
		)
	}
	return counter, h, nil
}

// readAnchor reads the head file of a journal; nil where there is none.
func readAnchor(path string) (*anchor, error) {
	b, err := os.ReadFile(anchorPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is an answer
	}
	if err != nil {
		return nil, failed(anchorPath(path), err)
	}
	counter, head, err := decodeAnchor(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", anchorPath(path), err)
	}
	return &anchor{counter: counter, head: head}, nil
}

// newAnchor makes, or replaces, the head file of a journal.
func newAnchor(path string, h Head) error {
	name := anchorPath(path)
	b := append(encodeSlot(0, h), encodeSlot(1, h)...)
	err := replaceFile(name, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
	if err != nil {
		return failed(name, err)
	}
	return nil
}

// openAnchor opens the head file for writing, and makes it where it is absent.
func openAnchor(path string, h Head, sync bool) (*anchor, error) {
	a, err := readAnchor(path)
	if err != nil {
		return nil, err
	}
	if a == nil {
		if err := newAnchor(path, h); err != nil {
			return nil, err
		}
		a = &anchor{counter: 1, head: h}
	}
	a.sync = sync
	if a.file, err = os.OpenFile(anchorPath(path), os.O_RDWR, 0o600); err != nil {
		return nil, failed(anchorPath(path), err)
	}
	return a, a.write(h)
}

// write makes h the durable head, in the slot that holds the older one.
func (a *anchor) write(h Head) error {
	if h == a.head {
		return nil
	}
	counter := a.counter + 1
	if _, err := a.file.WriteAt(encodeSlot(counter, h), int64(counter%2)*slotBytes); err != nil {
		return failed(a.file.Name(), err)
	}
	if a.sync {
		if err := syncData(a.file); err != nil {
			return failed(a.file.Name(), err)
		}
	}
	a.counter, a.head = counter, h
	return nil
}

func (a *anchor) close() error {
	if a == nil || a.file == nil {
		return nil
	}
	return a.file.Close()
}

// replaceFile writes a file beside name and puts it in name's place once it is
// on stable storage.
func replaceFile(name string, fill func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
