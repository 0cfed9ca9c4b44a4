package journal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// The full counts: go test ./backend/journal -run 'Killed|PowerLoss' -journal-kills 1000 -journal-images 1000
var (
	killsEach = flag.Int("journal-kills", 60, "kills at every point at which the journal writes")
	imagesAll = flag.Int("journal-images", 120, "images of a lost power")
)

var errKilled = errors.New("killed")

// story is what a client of the journal knows: records are numbered from 1 on,
// and a snapshot says how many there are.
type story struct {
	t     *testing.T
	path  string
	rand  *rand.Rand
	acked int // stored for certain
	tried int // given to the batch that was under way
	point string
	after int // of the point, before the kill
	j     *Journal
}

func (s *story) fault(point string) error {
	if point != s.point {
		return nil
	}
	if s.after--; s.after < 0 {
		return errKilled
	}
	return nil
}

// act appends or compacts once.
func (s *story) act() error {
	if s.acked > 0 && s.rand.IntN(6) == 0 {
		s.tried = s.acked
		return s.j.Compact(1, [][]byte{[]byte(strconv.Itoa(s.acked)), []byte("0")}, Keep{
			Record: func(Record) bool {
				return s.rand.IntN(3) == 0
			},
			Most: 5,
		})
	}
	var batch []Record
	for range 1 + s.rand.IntN(4) {
		batch = append(batch, Record{
			Kind: "event",
			Body: []byte(strconv.Itoa(s.acked + len(batch) + 1)),
		})
	}
	s.tried = s.acked + len(batch)
	err := s.j.Append(batch)
	if err == nil {
		s.acked = s.tried
	}
	return err
}

// The process ends at every point at which it writes: nothing that was
// acknowledged is lost, and nothing is there twice.
func TestKilledAtEveryPointOfAWrite(t *testing.T) {
	for _, point := range Points() {
		t.Run(point, func(t *testing.T) {
			s := &story{
				t:     t,
				path:  filepath.Join(t.TempDir(), "journal.db"),
				rand:  rand.New(rand.NewPCG(7, 7)),
				point: point,
			}
			for kill := range *killsEach {
				s.after = s.rand.IntN(4)
				s.live()
				n, err := s.exact()
				if err != nil || n != s.acked && n != s.tried {
					t.Fatalf("kill %d: %d records, %d were acknowledged and %d tried: %v",
						kill, n, s.acked, s.tried, err)
				}
				s.acked = n
			}
		})
	}
}

// live works until the kill.
func (s *story) live() {
	var err error
	if s.j, err = OpenWith(s.path, Options{Fault: s.fault, NoSync: true}); err != nil {
		s.t.Fatal(err)
	}
	for err == nil {
		err = s.act()
	}
	if !errors.Is(err, errKilled) {
		s.t.Fatal(err)
	}
	if err := s.j.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// exact reads how many records there are: each once, in order.
func (s *story) exact() (int, error) {
	j, err := OpenWith(s.path, Options{NoSync: true})
	if err != nil {
		return 0, err
	}
	defer j.Close()
	n := 0
	err = j.Each(func(r Record) error {
		v, _ := strconv.Atoi(string(r.Body))
		switch {
		case r.Kind == KindSnapshot || r.Kind == KindPart && v == 0:
		case r.Kind == KindPart:
			n = v
		case v != n+1:
			return fmt.Errorf("record %d says %d after %d", r.Seq, v, n)
		default:
			n = v
		}
		return nil
	})
	return n, err
}

// A write that fails leaves the same batch to be written again: once.
func TestSameBatchAgainAfterAFailure(t *testing.T) {
	for _, point := range []string{PointBeforeCommit, PointCommitted, PointBeforeCompact, PointCompacted} {
		t.Run(point, func(t *testing.T) {
			s := &story{
				t:     t,
				path:  filepath.Join(t.TempDir(), "journal.db"),
				rand:  rand.New(rand.NewPCG(1, 2)),
				point: point,
			}
			var err error
			if s.j, err = OpenWith(s.path, Options{Fault: s.fault, NoSync: true}); err != nil {
				t.Fatal(err)
			}
			for range 200 {
				s.after = s.rand.IntN(3)
				if err := s.act(); err != nil && s.tried > s.acked {
					s.retry()
				}
			}
			if err := s.j.Close(); err != nil {
				t.Fatal(err)
			}
			if n, err := s.exact(); err != nil || n != s.acked {
				t.Fatalf("%d records, %d acknowledged: %v", n, s.acked, err)
			}
		})
	}
}

func (s *story) retry() {
	s.after = 1 << 30
	var batch []Record
	for n := s.acked + 1; n <= s.tried; n++ {
		batch = append(batch, Record{Kind: "event", Body: []byte(strconv.Itoa(n))})
	}
	if err := s.j.Append(batch); err != nil {
		s.t.Fatal(err)
	}
	s.acked = s.tried
}

const sector = 512

// image is what the disk held at some moment.
type image struct{ db, head []byte }

func snap(t *testing.T, path string) image {
	t.Helper()
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(anchorPath(path))
	if err != nil {
		t.Fatal(err)
	}
	return image{db, head}
}

// mixed takes some of the sectors of what was being written, from an offset on
// up to another, each with chance one half.
func mixed(r *rand.Rand, old, now []byte, from, to int) []byte {
	out := bytes.Clone(old)
	if len(out) < len(now) && r.IntN(2) == 0 || from == 0 {
		out = append(out, make([]byte, max(0, len(now)-len(out)))...)
	}
	for at := from; at+sector <= min(to, len(out), len(now)); at += sector {
		if r.IntN(2) == 0 {
			copy(out[at:at+sector], now[at:at+sector])
		}
	}
	return out
}

// The order of one commit: data pages, sync, one meta page, sync, one slot of
// the head file, sync. Each stage is what a lost power leaves in it.
func crashImage(r *rand.Rand, stage int, old, now image) image {
	metas := 2 * os.Getpagesize()
	out := image{bytes.Clone(now.db), bytes.Clone(old.head)}
	switch stage {
	case 0: // some of the data
		out.db = mixed(r, old.db, now.db, metas, len(now.db))
		copy(out.db[:metas], old.db[:metas])
	case 1: // all of the data, and a part of the meta page
		torn := bytes.Clone(old.db[:metas])
		for at := 0; at < metas; at += metas / 2 {
			copy(torn[at:at+r.IntN(160)], now.db[at:])
		}
		copy(out.db, torn)
	case 2: // the commit, and a part of the head's slot
		for at := 0; at < len(out.head); at += slotBytes {
			copy(out.head[at:at+r.IntN(slotUsed+32)], now.head[at:])
		}
	case 3: // all
		out.head = bytes.Clone(now.head)
	case 4: // all, and then the newest meta page is damaged
		out.head = bytes.Clone(now.head)
		for at := 0; at < metas; at += metas / 2 {
			if !bytes.Equal(now.db[at:at+metas/2], old.db[at:at+metas/2]) {
				out.db[at+16+r.IntN(64)] ^= 1 << r.IntN(8)
			}
		}
	}
	return out
}

// Where the power goes, the journal comes back to a state that holds all that
// was acknowledged, or is refused: it never goes back in silence.
func TestPowerLoss(t *testing.T) {
	s := &story{
		t:     t,
		path:  filepath.Join(t.TempDir(), "journal.db"),
		rand:  rand.New(rand.NewPCG(3, 5)),
		point: "none",
	}
	var err error
	if s.j, err = OpenWith(s.path, Options{Fault: s.fault, NoSync: true}); err != nil {
		t.Fatal(err)
	}
	defer s.j.Close()
	for range 3 {
		if err := s.act(); err != nil {
			t.Fatal(err)
		}
	}
	outcomes := map[string]int{}
	crashed := &story{t: t, path: filepath.Join(t.TempDir(), "journal.db")}
	for n := range *imagesAll {
		before, acked := snap(t, s.path), s.acked
		if err := s.act(); err != nil {
			t.Fatal(err)
		}
		stage := n % 5
		outcomes[lookAt(
			t,
			crashed,
			crashImage(s.rand, stage, before, snap(t, s.path)),
			stage,
			acked,
			s.acked,
		)]++
	}
	t.Log(outcomes)
}

func lookAt(t *testing.T, s *story, im image, stage, before, after int) string {
	t.Helper()
	for name, b := range map[string][]byte{s.path: im.db, anchorPath(s.path): im.head} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.exact()
	switch {
	case errors.Is(err, ErrLost) && stage == 4:
		return "refused: lost"
	case err != nil:
		t.Fatalf("stage %d: %v", stage, err)
	case stage == 4:
		t.Fatalf("stage 4: a damaged meta page was not noticed: %d records of %d", n, after)
	case n == after && stage > 0:
		return fmt.Sprintf("stage %d: the batch is there", stage)
	case n == before && stage < 2:
		return fmt.Sprintf("stage %d: the batch is not there", stage)
	}
	if stage == 0 && n == after { // a compaction holds the same records
		return "stage 0: a snapshot"
	}
	t.Fatalf("stage %d: %d records, %d before and %d after", stage, n, before, after)
	return ""
}
