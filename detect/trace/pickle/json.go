package pickle

import (
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep containers hold each other when they are written
// out. A container that holds itself exceeds it.
const maxDepth = 64

// JSON returns a reader of a decoded pickle of size bytes as JSON. Tuples and
// sets become arrays, keys become texts, numbers that JSON lacks null. The text
// is written as it is read, so that values in many places need no memory.
func JSON(v any, size int) io.Reader {
	return newJSONReader(v, jsonPerByte*size+jsonFree)
}

func newJSONReader(v any, limit int) *jsonReader {
	r := &jsonReader{left: limit}
	r.err = r.write(v)
	return r
}

// place is an open container and how many of its items have been written.
type place struct {
	list *List // or
	dict *Dict
	next int
}

type jsonReader struct {
	out  []byte // written; read up to at
	at   int
	left int // bytes that may still be written
	path []place
	err  error
}

func (r *jsonReader) Read(p []byte) (int, error) {
	if r.at == len(r.out) {
		r.fill()
	}
	n := copy(p, r.out[r.at:])
	r.at += n
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
}

// fill writes the next part of the text.
func (r *jsonReader) fill() {
	const part = 32 << 10
	if r.at > 0 {
		r.out = r.out[:0]
		r.at = 0
	}
	for r.err == nil && len(r.out) < part {
		if len(r.path) == 0 {
			r.err = io.EOF
			return
		}
		before := len(r.out)
		r.err = r.writeNext()
		if r.left -= len(r.out) - before; r.left < 0 {
			r.err = fmt.Errorf("%w: written as JSON it is more than %d times as long",
				ErrTooLarge, jsonPerByte)
		}
	}
}

// writeNext writes the next item of the innermost container, or its end.
func (r *jsonReader) writeNext() error {
	in := &r.path[len(r.path)-1]
	at := in.next
	in.next++
	if in.dict != nil {
		return r.writePair(in.dict, at)
	}
	if at == len(in.list.Items) {
		return r.close(']')
	}
	if at > 0 {
		r.out = append(r.out, ',')
	}
	return r.write(in.list.Items[at])
}

func (r *jsonReader) writePair(d *Dict, at int) error {
	if at == len(d.Pairs) {
		return r.close('}')
	}
	if at > 0 {
		r.out = append(r.out, ',')
	}
	key, err := keyText(d.Pairs[at].Key)
	if err != nil {
		return err
	}
	r.writeText(key)
	r.out = append(r.out, ':')
	return r.write(d.Pairs[at].Value)
}

func (r *jsonReader) close(end byte) error {
	r.out, r.path = append(r.out, end), r.path[:len(r.path)-1]
	return nil
}

// write writes a value, of a container its beginning.
func (r *jsonReader) write(v any) error {
	switch v := v.(type) {
	case *List:
		return r.open('[', place{list: v})
	case *Dict:
		return r.open('{', place{dict: v})
	}
	r.writeScalar(v)
	return nil
}

func (r *jsonReader) open(begin byte, in place) error {
	if len(r.path) > maxDepth {
		return fmt.Errorf("%w: containers hold each other deeper than %d levels", ErrTooLarge, maxDepth)
	}
	r.out = append(r.out, begin)
	r.path = append(r.path, in)
	return nil
}

func keyText(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case *List, *Dict:
		return "", fmt.Errorf("%w: a dict's key is a container", ErrMalformed)
	}
	r := jsonReader{}
	r.writeScalar(key)
	return string(r.out), nil
}

func (r *jsonReader) writeScalar(v any) {
	switch v := v.(type) {
	case bool:
		r.out = strconv.AppendBool(r.out, v)
	case int64:
		r.out = strconv.AppendInt(r.out, v, 10)
	case *big.Int:
		r.out = v.Append(r.out, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			r.out = append(r.out, "null"...)
			return
		}
		r.out = strconv.AppendFloat(r.out, v, 'g', -1, 64)
	case string:
		r.writeText(v)
	default:
		r.out = append(r.out, "null"...)
	}
}

func (r *jsonReader) writeText(s string) {
	const hex = "0123456789abcdef"
	r.out = append(r.out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			r.out = append(r.out, '\\', c)
		case c < ' ':
			r.out = append(r.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			r.out = append(r.out, c)
		default:
			char, n := utf8.DecodeRuneInString(s[i:])
			r.out = utf8.AppendRune(r.out, char)
			i += n
			continue
		}
		i++
	}
	r.out = append(r.out, '"')
}
