package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace/pickle"
)

// unpickle turns a pickle into the JSON that the same dump would be, and leaves
// other input as it is. PyTorch's own dumps are pickles of plain data.
func unpickle(head []byte, in *bufio.Reader) (*bufio.Reader, error) {
	if !pickle.Looks(head) {
		return in, refusePickle(head)
	}
	var raw strings.Builder
	if n, err := io.Copy(&raw, io.LimitReader(in, pickle.MaxBytes+1)); err != nil {
		return nil, malformed(0, "this is a Python pickle that breaks off after %d bytes: %s",
			n, strconv.Quote(clipField(err.Error())))
	}
	v, err := pickle.Decode(raw.String())
	if err != nil {
		return nil, unreadable(err)
	}
	return bufio.NewReader(pickle.JSON(v, raw.Len())), nil
}

func unreadable(err error) error {
	return malformed(0, "this is a Python pickle that can't be read: %v", err)
}

// readDumpMember takes what a dump says beside its entries and groups.
func (f *file) readDumpMember(name string) error {
	if name == "version" {
		var v word
		err := f.stream.decodeValue(&v)
		f.dump.Version = clipField(string(v))
		return err
	}
	var raw json.RawMessage
	if err := f.stream.decodeValue(&raw); err != nil {
		return err
	}
	var status map[string]struct {
		Enqueued  loose `json:"last_enqueued_collective"`
		Completed loose `json:"last_completed_collective"`
	}
	if json.Unmarshal(raw, &status) != nil {
		return nil // other shapes say nothing that is needed
	}
	f.dump.byID = make(map[string]GroupStatus, len(status))
	for id, s := range status {
		if s.Enqueued.set && s.Completed.set {
			f.dump.byID[clipField(id)] = GroupStatus{s.Enqueued.n, s.Completed.n}
		}
	}
	return nil
}

// frame is one place of a recorded Python stack, the innermost first.
type frame struct {
	Name word  `json:"name"`
	File word  `json:"filename"`
	Line loose `json:"line"`
}

// callingPlace is the innermost frame that is not PyTorch's.
func callingPlace(frames []frame) string {
	for _, fr := range frames {
		if strings.Contains(string(fr.File), "/torch/") || fr.File == "" {
			continue
		}
		return clipField(fmt.Sprintf("%s at %s:%d",
			fr.Name, path.Base(string(fr.File)), fr.Line.n))
	}
	return ""
}

// isOver reports whether a call has ended. Backends that time nothing, as gloo,
// leave the state as it was and retire the entry.
func (raw *rawEntry) isOver() bool {
	return raw.State == "completed" ||
		raw.Retired && raw.State == "scheduled" && !strings.HasPrefix(string(raw.Name), "nccl:")
}

// nameGroups gives each status its group's name. The entries tell most of them.
// Numbers and numeric names are both given in the order of creation, so where
// there are equally many, and the entries agree, they pair up.
func (d *Dump) nameGroups() {
	known := map[string]string{}
	for _, e := range d.Entries {
		known[e.GroupID] = e.Group
	}
	inOrder := d.pairInOrder()
	for id, name := range known {
		if by, ok := inOrder[id]; ok && by != name {
			inOrder = nil // names are not in the order of creation here
			break
		}
	}
	for id, name := range inOrder {
		known[id] = name
	}
	d.Status = make(map[string]GroupStatus, len(d.byID))
	for id, s := range d.byID {
		if name, ok := known[id]; ok {
			d.Status[name] = s
		}
	}
}

// pairInOrder pairs the numbers of groups with their names by order; empty
// where they can't be.
func (d *Dump) pairInOrder() map[string]string {
	var ids, names []int
	for id := range d.byID {
		n, err := strconv.Atoi(id)
		if err != nil {
			return nil
		}
		ids = append(ids, n)
	}
	for name := range d.Groups {
		n, err := strconv.Atoi(name)
		if err != nil {
			return nil
		}
		names = append(names, n)
	}
	if len(ids) != len(names) {
		return nil
	}
	slices.SortFunc(ids, cmp.Compare[int])
	slices.SortFunc(names, cmp.Compare[int])
	out := make(map[string]string, len(ids))
	for i, id := range ids {
		out[strconv.Itoa(id)] = strconv.Itoa(names[i])
	}
	return out
}

// LooksRecorded reports whether a file begins as JSON, a pickle or gzip does.
func LooksRecorded(head []byte) bool {
	if pickle.Looks(head) || bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return true
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}
