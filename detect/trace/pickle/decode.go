package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Bounds on a pickle.
const (
	MaxBytes = 128 << 20 // of the pickle itself; PyTorch's are of kilobytes to megabytes
	MaxText  = 1 << 20   // of one text
	maxStack = 1 << 19   // values; the longest list of a dump is on the stack at once

	// Bytes of values that each byte of a pickle may make. Each byte of
	// PyTorch's dumps makes about 8.
	valuesPerByte = 16
	valuesFree    = 1 << 20 // for the first bytes

	// Bytes of JSON that each byte of a pickle may become. Each byte of PyTorch's
	// dumps becomes 3 to 5.
	jsonPerByte = 64
	jsonFree    = 1 << 20
)

// What can be wrong with a pickle.
var (
	ErrRefused   = errors.New("refused")
	ErrMalformed = errors.New("malformed pickle")
	ErrTooLarge  = errors.New("pickle too large")
)

// Bytes that a value takes on the heap. Texts share the memory of the pickle.
const (
	costSlot      = 16 // one value in a container or on the stack
	costMemo      = 32 // one value in the memo, which is copied as it grows
	costPair      = 2 * costSlot
	costContainer = 32
	costNumber    = 8
	costBig       = 128
	costText      = 16
	costSparse    = 64 // one value in the memo under a number out of order
)

// mark is what MARK leaves on the stack.
type mark struct{}

// machine is the pickle machine without calls.
type machine struct {
	in     string
	at     int
	stack  []any
	memo   []any          // by number
	sparse map[uint64]any // kept values whose number leaves a gap
	held   int            // bytes of values made
	limit  int
}

// Looks reports whether the first bytes are those of a pickle of a dict or list.
func Looks(head []byte) bool {
	if len(head) < 2 {
		return false
	}
	switch head[0] {
	case opProto:
		return head[1] <= 5
	case opEmptyDict, opMark: // protocols 0 and 1 have no header
		return true
	}
	return false
}

// Decode reads the first pickle of a file.
func Decode(in string) (any, error) {
	if len(in) > MaxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxBytes)
	}
	m := newMachine(in)
	return m.run()
}

func newMachine(in string) *machine {
	return &machine{
		in:     in,
		sparse: map[uint64]any{},
		limit:  valuesPerByte*len(in) + valuesFree,
	}
}

func (m *machine) run() (any, error) {
	for {
		op, err := m.readByte()
		if err != nil {
			return nil, err
		}
		if op == opStop {
			if len(m.stack) != 1 {
				return nil, m.broken("it ends with %d values instead of one", len(m.stack))
			}
			return m.pop()
		}
		if err := m.step(op); err != nil {
			return nil, err
		}
	}
}

func (m *machine) broken(format string, args ...any) error {
	return fmt.Errorf("%w: near byte %d: %s", ErrMalformed, m.at, fmt.Sprintf(format, args...))
}

// hold counts n more bytes of values.
func (m *machine) hold(n int) error {
	if m.held += n; m.held > m.limit {
		return fmt.Errorf(
			"%w: its %d bytes make more than %d bytes of values, twice what a flight-recorder dump makes",
			ErrTooLarge, len(m.in), m.limit,
		)
	}
	return nil
}

func (m *machine) readByte() (byte, error) {
	if m.at == len(m.in) {
		return 0, m.breaksOff()
	}
	m.at++
	return m.in[m.at-1], nil
}

func (m *machine) breaksOff() error {
	return fmt.Errorf("%w: it breaks off at byte %d", ErrMalformed, len(m.in))
}

// take returns the next n bytes.
func (m *machine) take(n uint64) (string, error) {
	if n > uint64(len(m.in)-m.at) {
		return "", m.breaksOff()
	}
	b := m.in[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

// takeUint reads an unsigned number of n bytes, least significant first.
func (m *machine) takeUint(n uint64) (uint64, error) {
	b, err := m.take(n)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// takeSized reads a length of n bytes and as many bytes.
func (m *machine) takeSized(n uint64) (string, error) {
	size, err := m.takeUint(n)
	if err != nil {
		return "", err
	}
	return m.take(size)
}

// takeLine reads up to the end of a line, as protocol 0 writes its arguments.
func (m *machine) takeLine() (string, error) {
	line, _, ended := strings.Cut(m.in[m.at:], "\n")
	if !ended {
		return "", m.breaksOff()
	}
	m.at += len(line) + 1
	return line, nil
}

// push puts a value that takes cost bytes onto the stack.
func (m *machine) push(v any, cost int) error {
	if len(m.stack) == maxStack {
		return fmt.Errorf("%w: more than %d values are on the stack", ErrTooLarge, maxStack)
	}
	if err := m.hold(cost); err != nil {
		return err
	}
	before := cap(m.stack)
	m.stack = append(m.stack, v)
	return m.hold(costSlot * (cap(m.stack) - before))
}

// pushText pushes a text that takes cost bytes in addition to those of the pickle.
func (m *machine) pushText(text string, cost int) error {
	if len(text) > MaxText {
		return fmt.Errorf("%w: a text of %d bytes", ErrTooLarge, len(text))
	}
	return m.push(text, costText+cost)
}

func (m *machine) pop() (any, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

// top returns the last value of the stack, which stays there.
func (m *machine) top() (any, error) {
	if len(m.stack) == 0 {
		return nil, m.broken("the stack is empty")
	}
	v := m.stack[len(m.stack)-1]
	if _, ok := v.(mark); ok {
		return nil, m.broken("a mark stands where a value must")
	}
	return v, nil
}

// popToMark removes all values down to the last mark, and the mark. They stay
// valid over one push, which takes the place of the mark.
func (m *machine) popToMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := m.stack[i+1:]
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, m.broken("a mark is missing")
}

func (m *machine) appendTo(items []any) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	l, ok := v.(*List)
	if !ok || l.Tuple {
		return m.broken("items are appended to a value that is not a list")
	}
	before := cap(l.Items)
	l.Items = append(l.Items, items...)
	return m.hold(costSlot * (cap(l.Items) - before))
}

func (m *machine) setIn(items []any) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok || len(items)%2 != 0 {
		return m.broken("items are set in a value that is not a dict, or a key has no value")
	}
	before := cap(d.Pairs)
	d.Pairs = slices.Grow(d.Pairs, len(items)/2)
	for i := 0; i < len(items); i += 2 {
		d.Pairs = append(d.Pairs, Pair{items[i], items[i+1]})
	}
	return m.hold(costPair * (cap(d.Pairs) - before))
}

func (m *machine) pushDict(items []any) error {
	if err := m.push(&Dict{}, costContainer); err != nil {
		return err
	}
	return m.setIn(items)
}

func (m *machine) pushList(items []any, tuple bool) error {
	return m.push(&List{Items: slices.Clone(items), Tuple: tuple}, costContainer+costSlot*len(items))
}

func (m *machine) pushTuple(n int) error {
	if n > len(m.stack) {
		return m.broken("the stack has fewer than %d values", n)
	}
	items := m.stack[len(m.stack)-n:]
	for _, v := range items {
		if _, ok := v.(mark); ok {
			return m.broken("a mark stands where a value must")
		}
	}
	m.stack = m.stack[:len(m.stack)-n]
	return m.pushList(items, true)
}

// putMemo keeps the last value of the stack under a number. Writers count up
// from 0.
func (m *machine) putMemo(key uint64) error {
	v, err := m.top()
	switch next := uint64(len(m.memo)); {
	case err != nil:
		return err
	case key < next:
		m.memo[key] = v
		return nil
	case key > next:
		m.sparse[key] = v
		return m.hold(costSparse)
	}
	before := cap(m.memo)
	m.memo = append(m.memo, v)
	return m.hold(costMemo * (cap(m.memo) - before))
}

func (m *machine) getMemo(key uint64) error {
	if key < uint64(len(m.memo)) {
		return m.push(m.memo[key], 0)
	}
	v, ok := m.sparse[key]
	if !ok {
		return m.broken("value %d was never kept", key)
	}
	return m.push(v, 0)
}

// pushLong reads a whole number in two's complement, least significant byte first.
func (m *machine) pushLong(text string) error {
	const widest = 64 // 512 bits; hashes and masks fit
	if len(text) > widest {
		return fmt.Errorf("%w: a number of %d bytes", ErrTooLarge, len(text))
	}
	if len(text) == 0 {
		return m.push(int64(0), 0)
	}
	b := []byte(text)
	slices.Reverse(b)
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return m.pushBig(n)
}

func (m *machine) pushBig(n *big.Int) error {
	if n.IsInt64() {
		return m.push(n.Int64(), costNumber)
	}
	return m.push(n, costBig)
}

func floatOf(b string) float64 {
	return math.Float64frombits(binary.BigEndian.Uint64([]byte(b)))
}
