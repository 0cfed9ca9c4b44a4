package pickle

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// The opcodes that are read, by Python's names.
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opDup             = '2'
	opFloat           = 'F'
	opInt             = 'I'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opLong            = 'L'
	opBinInt2         = 'M'
	opNone            = 'N'
	opString          = 'S'
	opBinString       = 'T'
	opShortBinString  = 'U'
	opUnicode         = 'V'
	opBinUnicode      = 'X'
	opAppend          = 'a'
	opDict            = 'd'
	opEmptyDict       = '}'
	opAppends         = 'e'
	opGet             = 'g'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opList            = 'l'
	opEmptyList       = ']'
	opPut             = 'p'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opEmptyTuple      = ')'
	opSetItems        = 'u'
	opBinFloat        = 'G'
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96
)

// refused are the opcodes that import, call, or bring in what is not in the
// pickle, by Python's names.
var refused = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ",
	0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
	'P': "PERSID", 'Q': "BINPERSID", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}

// step runs one opcode. Each of the four parts reports whether it knows it.
func (m *machine) step(op byte) error {
	if name, ok := refused[op]; ok {
		return fmt.Errorf(
			"%w: the pickle wants to import or call something (%s at byte %d), and a dump holds plain data only; nothing of it was run",
			ErrRefused, name, m.at-1,
		)
	}
	if known, err := m.stepStack(op); known {
		return err
	}
	if known, err := m.stepNumber(op); known {
		return err
	}
	if known, err := m.stepText(op); known {
		return err
	}
	if known, err := m.stepContainer(op); known {
		return err
	}
	return m.broken("0x%02x is no opcode; is this a pickle?", op)
}

func (m *machine) stepNumber(op byte) (bool, error) {
	switch op {
	case opNone:
		return true, m.push(nil, 0)
	case opNewTrue, opNewFalse:
		return true, m.push(op == opNewTrue, 0)
	case opBinInt, opBinInt1, opBinInt2:
		return true, m.pushBinInt(op)
	case opLong1, opLong4:
		size := uint64(1)
		if op == opLong4 {
			size = 4
		}
		b, err := m.takeSized(size)
		if err != nil {
			return true, err
		}
		return true, m.pushLong(b)
	case opBinFloat:
		b, err := m.take(8)
		if err != nil {
			return true, err
		}
		return true, m.push(floatOf(b), costNumber)
	case opInt, opLong, opFloat:
		line, err := m.takeLine()
		if err != nil {
			return true, err
		}
		return true, m.pushNumberLine(op, line)
	}
	return false, nil
}

func (m *machine) pushBinInt(op byte) error {
	size := uint64(1)
	switch op {
	case opBinInt:
		size = 4
	case opBinInt2:
		size = 2
	}
	n, err := m.takeUint(size)
	if err != nil {
		return err
	}
	if op == opBinInt {
		return m.push(int64(int32(uint32(n))), costNumber) //nolint:gosec // two's complement of four bytes
	}
	return m.push(int64(n), costNumber) //nolint:gosec // two bytes at most
}

// pushNumberLine reads protocol 0's numbers.
func (m *machine) pushNumberLine(op byte, line string) error {
	const longest = 160 // digits of 512 bits
	if op == opFloat {
		f, err := strconv.ParseFloat(line, 64)
		if err != nil && (f == 0 || len(line) > longest) {
			return m.broken("%s is no number", strconv.Quote(line[:min(len(line), 32)]))
		}
		return m.push(f, costNumber)
	}
	if op == opInt && (line == "00" || line == "01") {
		return m.push(line == "01", 0)
	}
	line = strings.TrimSuffix(line, "L")
	n := new(big.Int)
	ok := false
	if len(line) <= longest {
		n, ok = n.SetString(line, 10)
	}
	if !ok {
		return m.broken("%s is no number", strconv.Quote(line[:min(len(line), 32)]))
	}
	return m.pushBig(n)
}

// sizedTexts are the opcodes of texts and bytes with a length of so many bytes
// before them.
var sizedTexts = map[byte]uint64{
	opBinString:       4,
	opShortBinString:  1,
	opBinUnicode:      4,
	opShortBinUnicode: 1,
	opBinUnicode8:     8,
	opBinBytes:        4,
	opShortBinBytes:   1,
	opBinBytes8:       8,
	opByteArray8:      8,
}

func (m *machine) stepText(op byte) (bool, error) {
	if size, ok := sizedTexts[op]; ok {
		text, err := m.takeSized(size)
		if err != nil {
			return true, err
		}
		return true, m.pushText(text, 0)
	}
	if op != opString && op != opUnicode {
		return false, nil
	}
	line, err := m.takeLine()
	if err != nil {
		return true, err
	}
	text := unescapeUnicode(line)
	if op == opString {
		var ok bool
		if text, ok = unescapeString(line); !ok {
			return true, m.broken("a text has no quotes around it")
		}
	}
	return true, m.pushText(text, 2*len(text)+costNumber)
}

func (m *machine) stepContainer(op byte) (bool, error) {
	switch op {
	case opEmptyDict:
		return true, m.push(&Dict{}, costContainer)
	case opEmptyList, opEmptySet:
		return true, m.push(&List{}, costContainer)
	case opEmptyTuple:
		return true, m.push(&List{Tuple: true}, costContainer)
	case opTuple1, opTuple2, opTuple3:
		return true, m.pushTuple(int(op-opTuple1) + 1)
	case opAppend:
		v, err := m.pop()
		if err != nil {
			return true, err
		}
		return true, m.appendTo([]any{v})
	case opSetItem:
		v, err := m.pop()
		if err != nil {
			return true, err
		}
		key, err := m.pop()
		if err != nil {
			return true, err
		}
		return true, m.setIn([]any{key, v})
	case opDict, opList, opTuple, opFrozenSet, opAppends, opAddItems, opSetItems:
		items, err := m.popToMark()
		if err != nil {
			return true, err
		}
		return true, m.fromMark(op, items)
	}
	return false, nil
}

func (m *machine) fromMark(op byte, items []any) error {
	switch op {
	case opDict:
		return m.pushDict(items)
	case opAppends, opAddItems:
		return m.appendTo(items)
	case opSetItems:
		return m.setIn(items)
	}
	return m.pushList(items, op != opList)
}

func (m *machine) stepStack(op byte) (bool, error) {
	switch op {
	case opProto:
		v, err := m.readByte()
		if err == nil && v > 5 {
			err = fmt.Errorf("%w: protocol %d is not known; write it with protocol 5 or an older one",
				ErrMalformed, v)
		}
		return true, err
	case opFrame:
		_, err := m.take(8) // its length; the bytes follow as they would without it
		return true, err
	case opMark:
		return true, m.push(mark{}, 0)
	case opPop:
		if len(m.stack) == 0 {
			return true, m.broken("nothing is left to take")
		}
		m.stack = m.stack[:len(m.stack)-1]
		return true, nil
	case opPopMark:
		_, err := m.popToMark()
		return true, err
	case opDup:
		v, err := m.top()
		if err != nil {
			return true, err
		}
		return true, m.push(v, 0)
	case opMemoize:
		return true, m.putMemo(uint64(len(m.memo) + len(m.sparse)))
	case opPut, opGet:
		line, err := m.takeLine()
		if err != nil {
			return true, err
		}
		key, err := strconv.ParseUint(line, 10, 32)
		if err != nil {
			return true, m.broken("a kept value has no number")
		}
		return true, m.useMemo(op == opPut, key)
	case opBinPut, opBinGet, opLongBinPut, opLongBinGet:
		size := uint64(1)
		if op == opLongBinPut || op == opLongBinGet {
			size = 4
		}
		key, err := m.takeUint(size)
		if err != nil {
			return true, err
		}
		return true, m.useMemo(op == opBinPut || op == opLongBinPut, key)
	}
	return false, nil
}

func (m *machine) useMemo(put bool, key uint64) error {
	if put {
		return m.putMemo(key)
	}
	return m.getMemo(key)
}
