package storetest

// The client has the protocol's numbers from PyTorch's TCPStoreBackend.hpp, and
// not from the store that it tests.

// magic is what newer clients begin with, after the opcode 0.
const magic = 0x3C85F7CE

// valueMost bounds the bytes of a value in an answer.
const valueMost = 8 << 20

// Answers of one byte.
const (
	stopWaiting  byte = 0
	waitCanceled byte = 1
	isReady      byte = 0
)

// Layout says which numbers the requests have on the wire.
type Layout int

// The two layouts that PyTorch has released.
const (
	Legacy  Layout = iota // PyTorch 1.13 and 2.0: no greeting, SET is 0
	Current               // since: a magic number comes first, SET is 1
)

func (l Layout) String() string {
	return [...]string{"legacy", "current"}[l]
}

// op is a kind of request.
type op uint8

const (
	opSet op = iota
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opPush
	opPop
	opLen
	opListKeys
	opWatch
)

// numbers of the requests by layout; what a layout does not have is absent.
var numbers = [...]map[op]int{
	Legacy: {
		opSet:        0,
		opCompareSet: 1,
		opGet:        2,
		opAdd:        3,
		opCheck:      4,
		opWait:       5,
		opNumKeys:    6,
		opWatch:      7,
		opDelete:     8,
		opAppend:     9,
		opMultiGet:   10,
		opMultiSet:   11,
	},
	Current: {
		opSet:        1,
		opCompareSet: 2,
		opGet:        3,
		opAdd:        4,
		opCheck:      5,
		opWait:       6,
		opNumKeys:    7,
		opDelete:     8,
		opAppend:     9,
		opMultiGet:   10,
		opMultiSet:   11,
		opCancelWait: 12,
		opPing:       13,
		opPush:       14,
		opPop:        15,
		opLen:        16,
		opListKeys:   17,
	},
}
