package columns

import (
	"errors"
	"fmt"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ErrBroken is wrapped by every error about a message that can't be decoded.
var ErrBroken = errors.New("columns: broken message")

// ErrBase is wrapped when a message holds changes against another table than
// the reader's: ask for all of it.
var ErrBase = errors.New("columns: changes since another snapshot")

// Encode is the table as a message: changes since base, or whole without one
// or with one of another world.
func Encode(base, t *Table) *falconv1.RankColumns {
	if base != nil && base.world != t.world {
		base = nil
	}
	out := &falconv1.RankColumns{World: int32(t.world)}
	if base == nil {
		base = &Table{world: t.world, devices: make([]string, t.world)}
	} else {
		out.BaseVersion = base.Version
	}
	for p := range places {
		if c := encodeColumn(base.values[p], t.values[p]); c != nil {
			c.Place = int32(p)
			out.Columns = append(out.Columns, c)
		}
	}
	out.DeviceGaps, out.Devices = encodeDevices(base.devices, t.devices)
	return out
}

// sparseShare: up to one rank in so many is listed by gap and residue; more
// are cheaper in order.
const sparseShare = 3

// encodeColumn is nil where nothing has changed.
func encodeColumn(base, now []int32) *falconv1.Column {
	if sameColumn(base, now) {
		return nil
	}
	n := max(len(base), len(now))
	diff := make([]int32, n)
	for i := range diff {
		diff[i] = valueAt(now, i) - valueAt(base, i)
	}
	shift := majorityValue(diff)
	others := 0
	for _, d := range diff {
		if d != shift {
			others++
		}
	}
	if others == 0 && shift == 0 {
		return nil
	}
	if others > n/sparseShare {
		shift = medianOfSample(diff)
		for i := range diff {
			diff[i] -= shift
		}
		return &falconv1.Column{Shift: shift, Residues: diff}
	}
	c := &falconv1.Column{
		Shift:    shift,
		Gaps:     make([]uint32, 0, others),
		Residues: make([]int32, 0, others),
	}
	last := -1
	for i, d := range diff {
		if d != shift {
			c.Gaps = append(c.Gaps, uint32(i-last-1))
			c.Residues = append(c.Residues, d-shift)
			last = i
		}
	}
	return c
}

// majorityValue is the value of more than half of v, if there is one (Boyer and
// Moore's vote).
func majorityValue(v []int32) int32 {
	votes := 0
	best := int32(0)
	for _, x := range v {
		switch {
		case votes == 0:
			best, votes = x, 1
		case x == best:
			votes++
		default:
			votes--
		}
	}
	return best
}

// middleOf is how many values the middle is taken of.
const middleOf = 255

// medianOfSample is the median of evenly spread values of v, so that what remains is
// small.
func medianOfSample(v []int32) int32 {
	step := max(1, len(v)/middleOf)
	some := make([]int32, 0, len(v)/step+1)
	for i := 0; i < len(v); i += step {
		some = append(some, v[i])
	}
	slices.Sort(some)
	return some[len(some)/2]
}

// encodeDevices leaves the gaps out where every device is another one.
func encodeDevices(base, now []string) (gaps []uint32, devices []string) {
	if sameColumn(base, now) {
		return nil, nil
	}
	last := -1
	for i := range now {
		if now[i] != base[i] {
			gaps, devices = append(gaps, uint32(i-last-1)), append(devices, now[i])
			last = i
		}
	}
	if len(devices) == len(now) {
		gaps = nil
	}
	return gaps, devices
}

// Decode makes the table of a message that came with a snapshot of a version;
// base is what the reader holds, or nil. Columns that this reader does not
// know are passed over.
func Decode(version uint64, base *Table, m *falconv1.RankColumns) (*Table, error) {
	world := int(m.GetWorld())
	if world < 0 || world > MaxWorld {
		return nil, fmt.Errorf("%w: %d ranks", ErrBroken, world)
	}
	t := &Table{Version: version, world: world}
	if v := m.GetBaseVersion(); v != 0 {
		if base == nil || base.Version != v || base.world != world {
			return nil, fmt.Errorf("%w %d", ErrBase, v)
		}
		t.values, t.devices = base.values, base.devices
	} else {
		t.devices = make([]string, world)
	}
	for _, c := range m.GetColumns() {
		p := int(c.GetPlace())
		if p < 0 || p >= places {
			continue
		}
		v, err := decodeColumn(t.values[p], c, world)
		if err != nil {
			return nil, err
		}
		t.values[p] = v
	}
	return t, t.decodeDevices(m)
}

func decodeColumn(base []int32, c *falconv1.Column, world int) ([]int32, error) {
	gaps := c.GetGaps()
	residues := c.GetResidues()
	inOrder := len(gaps) == 0 && len(residues) > 0
	if inOrder && len(residues) != world || !inOrder && len(gaps) != len(residues) {
		return nil, fmt.Errorf("%w: %d gaps and %d residues for %d ranks",
			ErrBroken, len(gaps), len(residues), world)
	}
	out := make([]int32, world)
	copy(out, base)
	if shift := c.GetShift(); shift != 0 {
		for i := range out {
			out[i] += shift
		}
	}
	if inOrder {
		for i, r := range residues {
			out[i] += r
		}
		return out, nil
	}
	return out, eachGap(gaps, world, func(k, i int) {
		out[i] += residues[k]
	})
}

func (t *Table) decodeDevices(m *falconv1.RankColumns) error {
	gaps := m.GetDeviceGaps()
	devices := m.GetDevices()
	switch {
	case len(devices) == 0 && len(gaps) == 0:
		return nil
	case len(gaps) == 0 && len(devices) == t.world:
		t.devices = devices
		return nil
	case len(gaps) != len(devices):
		return fmt.Errorf("%w: %d gaps and %d devices", ErrBroken, len(gaps), len(devices))
	}
	t.devices = slices.Clone(t.devices)
	return eachGap(gaps, t.world, func(k, i int) {
		t.devices[i] = devices[k]
	})
}

// eachGap gives out the ranks that gaps name.
func eachGap(gaps []uint32, world int, do func(k, rank int)) error {
	next := 0
	for k, g := range gaps {
		if uint64(g) >= uint64(world-next) {
			return fmt.Errorf("%w: a gap leads beyond the last of %d ranks", ErrBroken, world)
		}
		next += int(g)
		do(k, next)
		next++
	}
	return nil
}
