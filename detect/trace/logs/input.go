package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/failslow/falcon/detect/trace"
)

// packers are compressions that are not supported, by their first bytes.
var packers = []struct{ magic, name, remedy string }{
	{"\x28\xb5\x2f\xfd", "zstd", "zstd -d"},
	{"\xfd7zXZ\x00", "xz", "xz -d"},
	{"BZh", "bzip2", "bzip2 -d"},
	{"PK\x03\x04", "zip", "unzip"},
}

// Open decompresses gzip and peeks at the beginning of a file. It refuses other
// compressions and UTF-16 with one sentence.
func Open(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, headBytes)
	head, err := peekHead(in)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		packed, err := gzip.NewReader(in)
		if err != nil {
			return nil, trace.Malformed(0, "the gzip header is broken")
		}
		in = bufio.NewReaderSize(packed, headBytes)
		if head, err = peekHead(in); err != nil {
			return nil, err
		}
	}
	for _, p := range packers {
		if bytes.HasPrefix(head, []byte(p.magic)) {
			return nil, trace.Malformed(0, "the file is compressed with %s; decompress it first: %s FILE",
				p.name, p.remedy)
		}
	}
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return nil, trace.Malformed(0,
			"the text is in UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 FILE")
	}
	return in, nil
}

// peekHead returns the bytes for Sniff, or all bytes of a short file.
func peekHead(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(headBytes)
	if err != nil &&
		!errors.Is(err, io.EOF) &&
		!errors.Is(err, bufio.ErrBufferFull) {
		return nil, readError(err)
	}
	return head, nil
}

const headBytes = 64 << 10

// readError formats an error of the reader.
func readError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return trace.Malformed(0,
			"the gzip data is truncated; copy the file again, or decompress the rest with: zcat FILE")
	case errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, gzip.ErrHeader) ||
		strings.HasPrefix(err.Error(), "flate:"):
		return trace.Malformed(0, "the gzip data is broken")
	}
	return fmt.Errorf("trace: reading: %w", err)
}

// line is one line of a text.
type line struct {
	number int    // from 1; parts between carriage returns share a number
	text   string // cleaned and trimmed
	whole  bool   // it has a line end; the last line of a file may be incomplete
}

// scanLines calls each for every line that is not blank. Carriage returns end lines,
// as in progress bars; escape sequences are removed.
func scanLines(r io.Reader, each func(line) error) error {
	limited := &io.LimitedReader{R: r, N: trace.MaxBytes + 1}
	scan := bufio.NewScanner(limited)
	scan.Buffer(make([]byte, 0, 64<<10), trace.MaxLine)
	scan.Split(splitLine)
	number, rows := 1, 0
	for scan.Scan() {
		raw := scan.Bytes()
		l := line{number: number, whole: true}
		last := len(raw) - 1
		switch raw[last] {
		case '\n':
			number++
			raw = raw[:last]
		case '\r':
			raw = raw[:last]
		default:
			l.whole = false
		}
		if l.text = cleanLine(raw); l.text == "" {
			continue
		}
		if rows++; rows > trace.MaxRows {
			return trace.TooLarge("more than %d rows; split the file", trace.MaxRows)
		}
		if err := each(l); err != nil {
			return err
		}
	}
	switch err := scan.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return trace.TooLarge("line %d is longer than %d bytes; is this a text file?", number, trace.MaxLine)
	case err != nil:
		return readError(err)
	case limited.N <= 0:
		return trace.TooLarge("more than %d bytes; split the file", trace.MaxBytes)
	}
	return nil
}

// splitLine splits after each newline or carriage return.
func splitLine(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexAny(data, "\n\r"); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// Printable is a line without terminal sequences, control characters, a byte order mark and invalid
// UTF-8; "" where nothing is left.
func Printable(raw []byte) string {
	if bytes.IndexByte(raw, 0x1b) >= 0 {
		raw = dropEscapes(raw)
	}
	text := string(raw)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "?")
	}
	text = strings.TrimPrefix(text, "\ufeff")
	if strings.ContainsFunc(text, isControl) {
		text = strings.Map(func(r rune) rune {
			if isControl(r) {
				return -1
			}
			return r
		}, text)
	}
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return text
}

// cleanLine is a printable line without spaces at its ends; a tab there is an empty field.
func cleanLine(raw []byte) string {
	return strings.Trim(Printable(raw), " ")
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0
}

// dropEscapes removes terminal sequences: CSI up to its final byte, OSC up to its
// end, and others with the byte after the escape.
func dropEscapes(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != 0x1b {
			out = append(out, raw[i])
			continue
		}
		i++
		if i >= len(raw) {
			break
		}
		switch raw[i] {
		case '[':
			for i++; i < len(raw) && (raw[i] < 0x40 || raw[i] > 0x7e); i++ {
			}
		case ']':
			for i++; i < len(raw) && raw[i] != 0x07 && raw[i] != '\\'; i++ {
			}
		}
	}
	return out
}
