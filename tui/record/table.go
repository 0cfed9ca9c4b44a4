package record

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ErrFrame is wrapped by errors about a frame that makes no sense.
var ErrFrame = errors.New("record: bad frame")

// maxRows bounds what a broken frame can make a reader allocate.
const maxRows = 1 << 20

// table is a list of rows as the frames so far have made it, the writer's and
// the reader's alike. Numbers are held in steps, so that rounding never adds
// up.
type table[T proto.Message] struct {
	cells   []cell
	rows    []T
	numbers [][]int64  // by cell, then row
	texts   [][]string // likewise
}

func newTable[T proto.Message]() *table[T] {
	var none T
	t := &table[T]{cells: cells(none.ProtoReflect().Descriptor())}
	t.numbers, t.texts = make([][]int64, len(t.cells)), make([][]string, len(t.cells))
	return t
}

// resize keeps the first n rows, or adds empty ones.
func (t *table[T]) resize(n int) {
	fit := len(t.rows)
	for i, c := range t.cells {
		if c.text {
			t.texts[i] = resized(t.texts[i], n)
		} else {
			t.numbers[i] = resized(t.numbers[i], n)
		}
	}
	rows := make([]T, n)
	copy(rows, t.rows)
	for i := fit; i < n; i++ {
		rows[i] = fresh[T]()
	}
	t.rows = rows
}

func resized[E any](s []E, n int) []E {
	if n <= len(s) {
		return s[:n:n]
	}
	return append(s, make([]E, n-len(s))...)
}

func fresh[T proto.Message]() T {
	var none T
	return none.ProtoReflect().New().Interface().(T)
}

// diff makes rows the table's, and says what that changes; nil where nothing.
func (t *table[T]) diff(rows []T) *falconv1.RecordTable {
	rows = rows[:min(len(rows), maxRows)]
	out := &falconv1.RecordTable{Rows: int32(len(rows))}
	changed := len(rows) != len(t.rows)
	old := t.rows
	t.resize(len(rows))
	for i, c := range t.cells {
		if col := t.column(i, c, old, rows); len(col.Skip) > 0 {
			out.Columns = append(out.Columns, col)
			changed = true
		}
	}
	t.rows = rows
	if !changed {
		return nil
	}
	return out
}

func (t *table[T]) column(i int, c cell, old, rows []T) *falconv1.RecordColumn {
	col := &falconv1.RecordColumn{Field: int32(c.field.Number())}
	skip := uint32(0)
	for r, row := range rows {
		if r < len(old) && any(old[r]) == any(row) { // messages never change, so it is equal
			skip++
			continue
		}
		v := row.ProtoReflect().Get(c.field)
		switch {
		case c.text && t.texts[i][r] != v.String():
			t.texts[i][r] = v.String()
			col.Text = append(col.Text, v.String())
		case !c.text && t.numbers[i][r] != c.number(v):
			n := c.number(v)
			col.Delta = append(col.Delta, n-t.numbers[i][r])
			t.numbers[i][r] = n
		default:
			skip++
			continue
		}
		col.Skip, skip = append(col.Skip, skip), 0
	}
	return col
}

// apply changes the table; rows that change are made anew, so that those
// handed out before stay as they are.
func (t *table[T]) apply(d *falconv1.RecordTable) error {
	if d == nil {
		return nil
	}
	if d.Rows < 0 || d.Rows > maxRows {
		return fmt.Errorf("%w: a table of %d rows", ErrFrame, d.Rows)
	}
	shared := min(len(t.rows), int(d.Rows))
	t.resize(int(d.Rows))
	renewed := make([]bool, len(t.rows))
	for r := shared; r < len(renewed); r++ {
		renewed[r] = true
	}
	for _, col := range d.Columns {
		if err := t.set(col, renewed); err != nil {
			return err
		}
	}
	return nil
}

func (t *table[T]) set(col *falconv1.RecordColumn, renewed []bool) error {
	i := t.index(col.Field)
	if i < 0 {
		return nil // a field that this build doesn't know
	}
	c := t.cells[i]
	values := len(col.Delta)
	if c.text {
		values = len(col.Text)
	}
	if values != len(col.Skip) {
		return fmt.Errorf("%w: %d values for %d rows", ErrFrame, values, len(col.Skip))
	}
	at := 0
	for k, skip := range col.Skip {
		at += int(skip)
		if at >= len(t.rows) {
			return fmt.Errorf("%w: row %d of %d", ErrFrame, at, len(t.rows))
		}
		row := t.own(at, renewed).ProtoReflect()
		if c.text {
			t.texts[i][at] = col.Text[k]
			row.Set(c.field, protoreflect.ValueOfString(col.Text[k]))
		} else {
			t.numbers[i][at] += col.Delta[k]
			row.Set(c.field, c.value(t.numbers[i][at]))
		}
		at++
	}
	return nil
}

// own is row r, a copy of its own where it has been handed out.
func (t *table[T]) own(r int, renewed []bool) T {
	if !renewed[r] {
		t.rows[r], renewed[r] = proto.CloneOf(t.rows[r]), true
	}
	return t.rows[r]
}

func (t *table[T]) index(field int32) int {
	for i, c := range t.cells {
		if int32(c.field.Number()) == field {
			return i
		}
	}
	return -1
}
