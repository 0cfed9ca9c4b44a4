package pickle

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// A value is nil, bool, int64, *big.Int, float64, string, Bytes, *List or
// *Dict. Containers are pointers, as several places can hold the same one.

// Bytes is a bytes or bytearray object.
type Bytes []byte

// List is a list, tuple, set or frozenset.
type List struct {
	Items []any
	Tuple bool
}

// Dict holds its pairs in the order of the pickle; a key can come twice.
type Dict struct {
	Pairs []Pair
}

// Pair is one key of a Dict with its value.
type Pair struct {
	Key, Value any
}

// Get is the last value of a text key, nil where there is none.
func (d *Dict) Get(key string) any {
	for i := len(d.Pairs) - 1; i >= 0; i-- {
		if k, ok := d.Pairs[i].Key.(string); ok && k == key {
			return d.Pairs[i].Value
		}
	}
	return nil
}

// maxDepth bounds how deep containers hold each other when they are written
// out; a container that holds itself passes it.
const maxDepth = 64

// JSON writes a value as JSON of at most limit bytes. Tuples and sets become
// arrays, keys become texts, bytes become text, numbers that JSON lacks null.
func JSON(v any, limit int) ([]byte, error) {
	w := writer{limit: limit}
	if err := w.write(v, 0); err != nil {
		return nil, err
	}
	return w.out, nil
}

type writer struct {
	out   []byte
	limit int
}

func (w *writer) write(v any, depth int) error {
	if len(w.out) > w.limit {
		return fmt.Errorf("%w: what it holds is longer than %d bytes when written out", ErrTooLarge, w.limit)
	}
	if depth > maxDepth {
		return fmt.Errorf("%w: containers hold each other deeper than %d levels", ErrTooLarge, maxDepth)
	}
	switch v := v.(type) {
	case *List:
		return w.writeList(v, depth)
	case *Dict:
		return w.writeDict(v, depth)
	default:
		w.writeScalar(v)
	}
	return nil
}

func (w *writer) writeList(l *List, depth int) error {
	w.out = append(w.out, '[')
	for i, item := range l.Items {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.write(item, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) writeDict(d *Dict, depth int) error {
	w.out = append(w.out, '{')
	for i, p := range d.Pairs {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		key, err := keyText(p.Key)
		if err != nil {
			return err
		}
		w.writeText(key)
		w.out = append(w.out, ':')
		if err := w.write(p.Value, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func keyText(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case *List, *Dict:
		return "", fmt.Errorf("%w: a dict's key is a container", ErrMalformed)
	default:
		w := writer{}
		w.writeScalar(key)
		text := string(w.out)
		if unquoted, err := strconv.Unquote(text); err == nil {
			return unquoted, nil
		}
		return text, nil
	}
}

func (w *writer) writeScalar(v any) {
	switch v := v.(type) {
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	case *big.Int:
		w.out = v.Append(w.out, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			w.out = append(w.out, "null"...)
			return
		}
		w.out = strconv.AppendFloat(w.out, v, 'g', -1, 64)
	case string:
		w.writeText(v)
	case Bytes:
		w.writeText(string(v))
	default:
		w.out = append(w.out, "null"...)
	}
}

func (w *writer) writeText(s string) {
	const hex = "0123456789abcdef"
	w.out = append(w.out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			w.out = append(w.out, '\\', c)
		case c < ' ':
			w.out = append(w.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			w.out = append(w.out, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			w.out = utf8.AppendRune(w.out, r)
			i += n
			continue
		}
		i++
	}
	w.out = append(w.out, '"')
}
