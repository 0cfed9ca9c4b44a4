package pickle

// A value is nil, bool, int64, *big.Int, float64, string, *List or *Dict. Bytes
// are strings. Containers are pointers, because they can be shared.

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
