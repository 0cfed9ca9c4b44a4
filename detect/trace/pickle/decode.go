package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// Bounds on a pickle.
const (
	MaxBytes = 128 << 20 // of the pickle itself; PyTorch's are of kilobytes to megabytes
	MaxHeld  = 256 << 20 // of what it makes, as it is held
)

// What can be wrong with a pickle.
var (
	ErrRefused   = errors.New("refused")
	ErrMalformed = errors.New("malformed pickle")
	ErrTooLarge  = errors.New("pickle too large")
)

// What a value takes, roughly, when it is held.
const (
	costSlot      = 16 // one value in a container or on the stack
	costPair      = 32
	costContainer = 48
	costMemo      = 48
)

// mark is what MARK leaves on the stack.
type mark struct{}

// machine is the pickle machine without its calls.
type machine struct {
	in    []byte
	at    int
	stack []any
	memo  map[uint64]any
	held  int
	limit int
}

// Looks reports whether bytes begin as a pickle of a dict or list does.
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

// Decode reads the first pickle of some bytes.
func Decode(in []byte) (any, error) { return decodeWithin(in, MaxHeld) }

func decodeWithin(in []byte, limit int) (any, error) {
	if len(in) > MaxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxBytes)
	}
	m := machine{in: in, memo: map[uint64]any{}, limit: limit}
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

// hold notes that n more bytes are held.
func (m *machine) hold(n int) error {
	if m.held += n; m.held > m.limit {
		return fmt.Errorf("%w: what it holds takes more than %d bytes", ErrTooLarge, m.limit)
	}
	return nil
}

func (m *machine) readByte() (byte, error) {
	b, err := m.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// take hands out the next n bytes.
func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.in)-m.at) {
		return nil, fmt.Errorf("%w: it breaks off at byte %d", ErrMalformed, len(m.in))
	}
	b := m.in[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

// takeUint reads an unsigned number of n bytes, the least first.
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
func (m *machine) takeSized(n uint64) ([]byte, error) {
	size, err := m.takeUint(n)
	if err != nil {
		return nil, err
	}
	return m.take(size)
}

// takeLine reads up to a line's end, as protocol 0 writes its arguments.
func (m *machine) takeLine() (string, error) {
	for i := m.at; i < len(m.in); i++ {
		if m.in[i] == '\n' {
			line := string(m.in[m.at:i])
			m.at = i + 1
			return line, nil
		}
	}
	return "", fmt.Errorf("%w: it breaks off at byte %d", ErrMalformed, len(m.in))
}

func (m *machine) push(v any, cost int) error {
	m.stack = append(m.stack, v)
	return m.hold(costSlot + cost)
}

func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, m.broken("nothing is left to take")
	}
	v := m.stack[len(m.stack)-1]
	if _, ok := v.(mark); ok {
		return nil, m.broken("a mark stands where a value must")
	}
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// top is the value that stays on the stack.
func (m *machine) top() (any, error) {
	v, err := m.pop()
	if err == nil {
		m.stack = append(m.stack, v)
	}
	return v, err
}

// popToMark takes all values down to the last mark, which goes too.
func (m *machine) popToMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return items, m.hold(costSlot * len(items))
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
		return m.broken("what is appended to is no list")
	}
	l.Items = append(l.Items, items...)
	return m.hold(costSlot * len(items))
}

func (m *machine) setIn(items []any) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok || len(items)%2 != 0 {
		return m.broken("pairs go into what is no dict, or a key has no value")
	}
	for i := 0; i < len(items); i += 2 {
		d.Pairs = append(d.Pairs, Pair{items[i], items[i+1]})
	}
	return m.hold(costPair * len(items) / 2)
}

func (m *machine) pushDict(items []any) error {
	if err := m.push(&Dict{}, costContainer); err != nil {
		return err
	}
	return m.setIn(items)
}

func (m *machine) pushTuple(n int) error {
	if n > len(m.stack) {
		return m.broken("nothing is left to take")
	}
	items := append([]any(nil), m.stack[len(m.stack)-n:]...)
	for _, v := range items {
		if _, ok := v.(mark); ok {
			return m.broken("a mark stands where a value must")
		}
	}
	m.stack = m.stack[:len(m.stack)-n]
	return m.push(&List{Items: items, Tuple: true}, costContainer+costSlot*n)
}

func (m *machine) putMemo(key uint64) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	m.memo[key] = v
	return m.hold(costMemo)
}

func (m *machine) getMemo(key uint64) error {
	v, ok := m.memo[key]
	if !ok {
		return m.broken("value %d was never kept", key)
	}
	return m.push(v, 0)
}

// pushLong reads a whole number of two's complement, the least byte first.
func (m *machine) pushLong(b []byte) error {
	const widest = 64 // 512 bits; hashes and masks fit
	if len(b) > widest {
		return fmt.Errorf("%w: a number of %d bytes", ErrTooLarge, len(b))
	}
	if len(b) == 0 {
		return m.push(int64(0), 8)
	}
	turned := make([]byte, len(b))
	for i, c := range b {
		turned[len(b)-1-i] = c
	}
	n := new(big.Int).SetBytes(turned)
	if b[len(b)-1]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return m.pushBig(n)
}

func (m *machine) pushBig(n *big.Int) error {
	if n.IsInt64() {
		return m.push(n.Int64(), 8)
	}
	return m.push(n, 64)
}

func floatOf(b []byte) float64 { return math.Float64frombits(binary.BigEndian.Uint64(b)) }
