package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// MaxFiles bounds the files of one set.
const MaxFiles = 1 << 17

// Records are the traces or flight-recorder dumps of one job, file by file.
// The zero value is empty. One goroutine owns it.
type Records struct {
	files  int
	chrome chrome
	dumps  []Dump
	ras    *RAS
	stacks []Stack
	bytes  int64 // rough size of the dumps that are held
}

// Add reads one file: a Chrome or Kineto trace (an array of events, or an
// object with "traceEvents"), or a flight-recorder dump (an object with
// "entries", as JSON or as a pickle), plain or gzip. name is used for the rank when the file itself
// does not name it ("trace_rank3.json").
func (rec *Records) Add(name string, r io.Reader) error {
	if rec.files++; rec.files > MaxFiles {
		return fmt.Errorf("%w: more than %d files", ErrTooLarge, MaxFiles)
	}
	s, err := newStream(r)
	if err != nil {
		return err
	}
	t, err := s.nextToken()
	if err != nil {
		return err
	}
	f := file{
		rec:    rec,
		stream: s,
		rank:   rankFromName(name),
		name:   clipField(name),
	}
	rec.chrome.file = rec.files
	rec.chrome.fileRank = unknown
	switch t {
	case json.Delim('['):
		f.traced = true
		err = s.readArray(f.readEvent)
	case json.Delim('{'):
		err = s.readObject(f.readMember)
	default:
		return malformed(0, "this is neither a list of events nor an object with traceEvents or entries")
	}
	if err == nil {
		err = s.expectEnd()
	}
	if err != nil {
		return err
	}
	return f.finishFile()
}

// Timeline is what the traces hold; ok is false where there was none.
func (rec *Records) Timeline(want Shape) (t Timeline, ok bool, err error) {
	if len(rec.chrome.lanes) == 0 {
		return Timeline{}, false, nil
	}
	t, err = rec.chrome.timeline(want)
	return t, true, err
}

// Dumps are the flight-recorder dumps, by rank.
func (rec *Records) Dumps() []Dump { return rec.dumps }

// file is one file being read.
type file struct {
	rec    *Records
	stream *stream
	name   string
	rank   int // by the file's name or its own word, unknown = -1
	traced bool
	dumped bool
	dump   Dump
	rased  bool
	ras    RAS
	seen   event // the present one; its buffers serve the next
}

const unknown = -1

func (f *file) readMember(name string) error {
	switch name {
	case "traceEvents":
		f.traced = true
		return f.stream.readList(name, f.readEvent)
	case "distributedInfo":
		var info struct {
			Rank  loose `json:"rank"`
			World loose `json:"world_size"`
		}
		if err := f.stream.decodeValue(&info); err != nil {
			return err
		}
		if info.Rank.set {
			f.rank = int(info.Rank.n)
			f.rec.chrome.fileRank = f.rank
		}
		if info.World.set {
			f.rec.chrome.world = max(f.rec.chrome.world, int(info.World.n))
		}
		return nil
	case "entries":
		f.dumped = true
		return f.stream.readList(name, f.readEntry)
	case "pg_config":
		f.dumped = true
		return f.stream.decodeValue(&f.dump.Groups)
	case "version", "pg_status":
		f.dumped = f.dumped || name == "pg_status"
		return f.readDumpMember(name)
	case "communicators", "timestamp":
		return f.readRASMember(name)
	case "rank":
		var r loose
		if err := f.stream.decodeValue(&r); err != nil {
			return err
		}
		if r.set {
			f.rank = int(r.n)
		}
		return nil
	}
	return f.stream.decodeValue(nil)
}

func (f *file) finishFile() error {
	switch {
	case f.traced:
		f.rec.chrome.closeFile(f.rank) // the file's own word has been noted
		return nil
	case f.dumped:
		return f.keepDump()
	case f.rased:
		return f.keepRAS()
	}
	return malformed(
		0,
		"neither traceEvents (a Chrome trace) nor entries (a flight-recorder dump) nor communicators (NCCL's RAS) is in it",
	)
}

func (f *file) readEvent() error {
	f.seen = event{
		Pid:  f.seen.Pid[:0],
		Tid:  f.seen.Tid[:0],
		Args: f.seen.Args[:0],
	}
	if err := f.stream.decodeValue(&f.seen); err != nil {
		return err
	}
	return f.rec.chrome.takeEvent(&f.seen)
}

var (
	rankInName = regexp.MustCompile(`(?i)(?:rank|trace|worker)?[_.-]*(\d+)(?:\.[a-z.]+)?$`)
	rankByWord = regexp.MustCompile(`(?i)rank[_.-]*(\d+)`)
)

// rankFromName reads the rank off a file's name: behind "rank", else the last digits.
func rankFromName(name string) int {
	m := rankByWord.FindStringSubmatch(name)
	if m == nil {
		m = rankInName.FindStringSubmatch(name)
	}
	if m == nil {
		return unknown
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n >= MaxWorld {
		return unknown
	}
	return n
}
