package falcon

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrName is wrapped by every error about a device, node or link name.
var ErrName = errors.New("falcon: bad name")

// Node names a machine ("n1").
type Node string

// Device names a GPU by its node and index ("n1.g0").
type Device string

// NewDevice builds the name of GPU index on node.
func NewDevice(n Node, index int) Device {
	return Device(string(n) + ".g" + strconv.Itoa(index))
}

// ParseDevice checks a name of the form NODE.gINDEX.
func ParseDevice(s string) (Device, error) {
	i := strings.LastIndex(s, ".g")
	if i < 1 {
		return "", fmt.Errorf("%w: device %q is not of the form NODE.gINDEX, such as n1.g0", ErrName, s)
	}
	if n, err := strconv.Atoi(s[i+2:]); err != nil || n < 0 {
		return "", fmt.Errorf("%w: device %q ends in no GPU index, such as n1.g0", ErrName, s)
	}
	return Device(s), nil
}

// Node is the machine that holds the device.
func (d Device) Node() Node {
	if i := strings.LastIndex(string(d), ".g"); i >= 0 {
		return Node(d[:i])
	}
	return Node(d)
}

// Index is the device's number on its node, -1 where the name has none.
func (d Device) Index() int {
	i := strings.LastIndex(string(d), ".g")
	if i < 0 {
		return -1
	}
	n, err := strconv.Atoi(string(d[i+2:]))
	if err != nil {
		return -1
	}
	return n
}

// NIC is a network port by node and index: "n1.nic0".
type NIC string

// Node is the machine that holds the port; empty when the name has no node.
func (n NIC) Node() Node {
	node, _, _ := strings.Cut(string(n), ".nic")
	return Node(node)
}

// Link is an unordered pair of nodes, kept sorted ("n1-n3").
type Link struct {
	A, B Node
}

// NewLink sorts the pair.
func NewLink(a, b Node) Link {
	if b < a {
		a, b = b, a
	}
	return Link{A: a, B: b}
}

// ParseLink checks a name of the form NODE-NODE. Nodes with dashes in their
// names must have equally many.
func ParseLink(s string) (Link, error) {
	parts := strings.Split(s, "-")
	half := len(parts) / 2
	a := strings.Join(parts[:half], "-")
	b := strings.Join(parts[half:], "-")
	if len(parts)%2 != 0 || a == "" || b == "" || a == b {
		return Link{}, fmt.Errorf("%w: link %q is not two different nodes joined by a dash, such as n1-n3",
			ErrName, s)
	}
	return NewLink(Node(a), Node(b)), nil
}

func (l Link) String() string {
	return string(l.A) + "-" + string(l.B)
}

// MarshalText writes the sorted name.
func (l Link) MarshalText() ([]byte, error) {
	return []byte(l.String()), nil
}

// UnmarshalText reads a name of the form NODE-NODE.
func (l *Link) UnmarshalText(b []byte) error {
	p, err := ParseLink(string(b))
	if err == nil {
		*l = p
	}
	return err
}

// Placement is the device of each rank; its index is the rank.
type Placement []Device

// Nodes lists the nodes of a placement in the order of their first ranks.
func (p Placement) Nodes() []Node {
	var out []Node
	seen := map[Node]bool{}
	for _, d := range p {
		if n := d.Node(); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// SortedNodes lists the nodes of a placement by name. Ranks without a device do
// not count.
func (p Placement) SortedNodes() []Node {
	var out []Node
	for _, d := range p {
		if d != "" {
			out = append(out, d.Node())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Rank finds the rank on device d.
func (p Placement) Rank(d Device) (Rank, bool) {
	i := slices.Index(p, d)
	return Rank(i), i >= 0
}
