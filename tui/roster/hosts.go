package roster

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// Hosts is which ranks share a node. The object stays the same until a rank changes
// its device, so that layouts made of it stay valid.
type Hosts struct {
	Names  []string // of nodes, n2 before n10
	NodeOf []int32  // by rank: index into Names
	Order  []int32  // ranks by node, then by device
	Place  []int32  // by rank: index into Order

	devices []string
}

// lazyHosts are the hosts, computed on demand.
type lazyHosts struct {
	once sync.Once
	of   *Hosts
}

// unplaced is how many ranks without a known device are taken for one node.
const unplaced = 8

var newestHosts atomic.Pointer[Hosts]

// Hosts finds which ranks share a node.
func (t *Roster) Hosts() *Hosts {
	t.hosts.once.Do(func() {
		old := newestHosts.Load()
		if old != nil && equalNames(t.table.Devices(), old.devices) {
			t.hosts.of = old
			return
		}
		t.hosts.of = t.makeHosts()
		newestHosts.Store(t.hosts.of)
	})
	return t.hosts.of
}

// equalNames compares no names of tables that share them.
func equalNames(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

func (t *Roster) makeHosts() *Hosts {
	n := t.World()
	h := &Hosts{
		NodeOf:  make([]int32, n),
		Order:   make([]int32, n),
		Place:   make([]int32, n),
		devices: t.table.Devices(),
	}
	index := map[string]int32{}
	for i, device := range h.devices {
		name := NodeOf(device)
		if name == "" {
			name = "~" + strconv.Itoa(i/unplaced)
		}
		at, known := index[name]
		if !known {
			at = int32(len(h.Names))
			index[name], h.Names = at, append(h.Names, name)
		}
		h.NodeOf[i] = at
		h.Order[i] = int32(i)
	}
	h.sortByName()
	return h
}

// sortByName brings nodes and ranks in the order of their names.
func (h *Hosts) sortByName() {
	by := make([]int32, len(h.Names))
	for i := range by {
		by[i] = int32(i)
	}
	slices.SortFunc(by, func(a, b int32) int {
		return Natural(h.Names[a], h.Names[b])
	})
	at := make([]int32, len(by))
	names := make([]string, len(by))
	for i, old := range by {
		at[old], names[i] = int32(i), h.Names[old]
	}
	h.Names = names
	for r, old := range h.NodeOf {
		h.NodeOf[r] = at[old]
	}
	slices.SortFunc(h.Order, func(a, b int32) int {
		return cmp.Or(
			cmp.Compare(h.NodeOf[a], h.NodeOf[b]),
			Natural(h.devices[a], h.devices[b]),
			cmp.Compare(a, b),
		)
	})
	for i, r := range h.Order {
		h.Place[r] = int32(i)
	}
}

// Natural compares names with the numbers in them by value: n2 before n10.
func Natural(a, b string) int {
	for a != "" && b != "" {
		x := leadingDigits(a)
		y := leadingDigits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a = a[1:]
			b = b[1:]
			continue
		}
		if c := compareNumbers(a[:x], b[:y]); c != 0 {
			return c
		}
		a = a[x:]
		b = b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// compareNumbers compares two runs of digits by value, equal values by length.
func compareNumbers(a, b string) int {
	x, y := a, b
	for len(x) > 1 && x[0] == '0' {
		x = x[1:]
	}
	for len(y) > 1 && y[0] == '0' {
		y = y[1:]
	}
	return cmp.Or(
		cmp.Compare(len(x), len(y)),
		cmp.Compare(x, y),
		cmp.Compare(len(a), len(b)),
	)
}
