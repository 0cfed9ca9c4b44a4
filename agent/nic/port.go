package nic

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// fileBytesMax bounds what is read of one file of sysfs, whose attributes are
// at most a page.
const fileBytesMax = 4096

// ErrFormat is wrapped where a file is not as documented.
var ErrFormat = errors.New("nic: unexpected format")

// place is where a port lies: class/infiniband/DEVICE/ports/PORT, or
// class/net/DEVICE.
type place struct {
	device string
	port   int // 0 for class/net
}

func (p place) directory(root string) string {
	if p.port == 0 {
		return filepath.Join(root, "class", "net", p.device)
	}
	return filepath.Join(
		root,
		"class",
		"infiniband",
		p.device,
		"ports",
		strconv.Itoa(p.port),
	)
}

func (p place) deviceDir(root string) string {
	class := "infiniband"
	if p.port == 0 {
		class = "net"
	}
	return filepath.Join(root, "class", class, p.device, "device")
}

// scanPorts lists the ports in the order of their names.
func scanPorts(root string) []place {
	var out []place
	for _, device := range listDirectory(filepath.Join(root, "class", "infiniband")) {
		for _, n := range listDirectory(filepath.Join(root, "class", "infiniband", device, "ports")) {
			if port, err := strconv.Atoi(n); err == nil && port > 0 {
				out = append(out, place{device, port})
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, device := range listDirectory(filepath.Join(root, "class", "net")) {
		// else it is virtual
		if _, err := os.Stat(filepath.Join(root, "class", "net", device, "device")); err == nil {
			out = append(out, place{device: device})
		}
	}
	return out
}

func listDirectory(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.SortFunc(out, compareNatural)
	return out
}

// compareNatural compares names with the number at their end as a number: mlx5_9 comes
// before mlx5_10.
func compareNatural(a, b string) int {
	headA, numberA := splitNumber(a)
	headB, numberB := splitNumber(b)
	return cmp.Or(
		strings.Compare(headA, headB),
		cmp.Compare(numberA, numberB),
		strings.Compare(a, b),
	)
}

func splitNumber(name string) (head string, number int) {
	head = strings.TrimRight(name, "0123456789")
	number, err := strconv.Atoi(name[len(head):])
	if err != nil {
		return name, -1
	}
	return head, number
}

// port is one port and what its counters have come to.
type port struct {
	place
	name   falcon.NIC
	meters map[string]*meter // by file
	looked bool              // before
	fall   fall
}

// meter makes a counter that only grows of one that may wrap or start over.
// Where it starts does not matter: readers take differences.
type meter struct{ last, total uint64 }

func (m *meter) addReading(raw uint64, bits32 bool) {
	grown := raw // the driver was loaded again
	switch {
	case raw >= m.last:
		grown = raw - m.last
	case bits32 && m.last <= math.MaxUint32 && m.last-raw > 1<<31:
		grown = raw + 1<<32 - m.last
	}
	m.last, m.total = raw, saturatingAdd(m.total, grown)
}

// saturatingAdd stays at the largest number rather than to fall.
func saturatingAdd(a, b uint64) uint64 {
	if sum, carry := bits.Add64(a, b, 0); carry == 0 {
		return sum
	}
	return math.MaxUint64
}

// unitsOf is what n counts of this size stand for.
func unitsOf(n, size uint64) uint64 {
	if high, low := bits.Mul64(n, size); high == 0 {
		return low
	}
	return math.MaxUint64
}

// source is one file that adds to a field.
type source struct {
	file   string
	bits32 bool   // wraps at 32 bits in hardware
	unit   uint64 // what one count means
}

// field is one meaning and the files that hold it. Those of class/infiniband are
// the kernel's (Documentation/ABI/stable/sysfs-class-infiniband) and mlx5's
// (drivers/infiniband/hw/mlx5/counters.c): queue counters have 32 bits, those of
// congestion control 64, and port_*_data count 4 octets.
//
// The files are read one by one rather than through github.com/prometheus/procfs, which
// reads every file of the port (482 allocations in place of 112) and returns no port at
// all where one file is missing or unreadable.
type field struct {
	name    string
	sources []source
	into    func(*falcon.NICReading) *uint64
	roce    bool // only ports on Ethernet have it
}

var infiniband = []field{
	{
		"port_xmit_wait",
		[]source{{"counters/port_xmit_wait", true, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.XmitWait },
		false,
	},
	{
		"np_cnp_sent",
		[]source{{"hw_counters/np_cnp_sent", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.CNPSent },
		true,
	},
	{
		"rp_cnp_handled",
		[]source{{"hw_counters/rp_cnp_handled", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.CNPHandled },
		true,
	},
	{
		"np_ecn_marked_roce_packets",
		[]source{{"hw_counters/np_ecn_marked_roce_packets", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.ECNMarked },
		true,
	},
	{"retransmits", []source{
		{"hw_counters/packet_seq_err", true, 1},
		{"hw_counters/local_ack_timeout_err", true, 1},
		{"hw_counters/implied_nak_seq_err", true, 1},
		{"hw_counters/rnr_nak_retry_err", true, 1},
		{"hw_counters/roce_adp_retrans", true, 1},
	}, func(r *falcon.NICReading) *uint64 { return &r.Retransmits }, false},
	{
		"out_of_sequence",
		[]source{{"hw_counters/out_of_sequence", true, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.OutOfSequence },
		false,
	},
	{
		"link_downed",
		[]source{{"counters/link_downed", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.LinkDowned },
		false,
	},
	{
		"symbol_error",
		[]source{{"counters/symbol_error", true, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.SymbolErrors },
		false,
	},
	{
		"port_xmit_data",
		[]source{{"counters/port_xmit_data", false, 4}},
		func(r *falcon.NICReading) *uint64 { return &r.XmitBytes },
		false,
	},
	{
		"port_rcv_data",
		[]source{{"counters/port_rcv_data", false, 4}},
		func(r *falcon.NICReading) *uint64 { return &r.RcvBytes },
		false,
	},
}

// ethernet ports count lost links, broken frames and bytes; of congestion
// nothing that is the same with every driver.
var ethernet = []field{
	{
		"carrier_down_count",
		[]source{{"carrier_down_count", true, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.LinkDowned },
		false,
	},
	{
		"rx_crc_errors",
		[]source{{"statistics/rx_crc_errors", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.SymbolErrors },
		false,
	},
	{
		"tx_bytes",
		[]source{{"statistics/tx_bytes", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.XmitBytes },
		false,
	},
	{
		"rx_bytes",
		[]source{{"statistics/rx_bytes", false, 1}},
		func(r *falcon.NICReading) *uint64 { return &r.RcvBytes },
		false,
	},
}

// readPort takes one reading of the port.
func (p *port) readPort(root string) falcon.NICReading {
	r := falcon.NICReading{NIC: p.name}
	dir := p.directory(root)
	if _, err := os.Stat(dir); err != nil {
		p.fillReading(&r, func(source) (uint64, bool) { return 0, false }, nil)
		r.Err = "the port is gone"
		return r
	}
	state := infinibandState
	if p.port == 0 {
		state = ethernetState
	}
	absent := state(&r, dir)
	layer, _ := readAttribute(filepath.Join(dir, "link_layer"))
	skip := func(f field) bool { return f.roce && layer == "InfiniBand" }
	missing := p.fillReading(&r, func(s source) (uint64, bool) {
		n, err := readCounter(filepath.Join(dir, s.file))
		return n, err == nil
	}, skip)
	if len(missing) > 0 {
		absent = append(absent, "not offered: "+strings.Join(missing, ", "))
	}
	p.looked = true
	r.Err = strings.Join(absent, "; ")
	return r
}

// fillReading reads every field; a counter that can't be read now keeps its value. It
// returns the fields of which nothing was readable.
func (p *port) fillReading(
	r *falcon.NICReading,
	value func(source) (uint64, bool),
	skip func(field) bool,
) (missing []string) {
	fields := infiniband
	if p.port == 0 {
		fields = ethernet
	}
	for _, f := range fields {
		any := false
		for _, s := range f.sources {
			raw, ok := value(s)
			any = any || ok
			*f.into(r) = saturatingAdd(*f.into(r), unitsOf(p.readCounter(s, raw, ok), s.unit))
		}
		if !any && skip != nil && !skip(f) {
			missing = append(missing, f.name)
		}
	}
	return missing
}

// readCounter takes in a raw value where there is one. A file that comes later than
// the port starts at zero, not at its past, which is not new.
func (p *port) readCounter(s source, raw uint64, ok bool) uint64 {
	m := p.meters[s.file]
	switch {
	case m == nil && !ok:
		return 0
	case m == nil:
		m = &meter{last: raw}
		if !p.looked {
			m.total = raw
		}
		p.meters[s.file] = m
	case ok:
		m.addReading(raw, s.bits32)
	}
	return m.total
}

func infinibandState(r *falcon.NICReading, dir string) (absent []string) {
	text, err := readAttribute(filepath.Join(dir, "state"))
	if err != nil {
		absent = append(absent, "state: "+err.Error())
	}
	r.Active = err == nil && strings.Contains(text, "ACTIVE") && !strings.Contains(text, "DEFER")
	if text, err = readAttribute(filepath.Join(dir, "rate")); err == nil {
		r.RateMbps, err = parseRate(text)
	}
	if err != nil {
		absent = append(absent, "rate: "+err.Error())
	}
	if !r.Active {
		r.RateMbps = 0
	}
	return absent
}

// ethernetState reads a port of class/net. Its speed can't be read while the
// link is down.
func ethernetState(r *falcon.NICReading, dir string) (absent []string) {
	text, err := readAttribute(filepath.Join(dir, "operstate"))
	if err != nil {
		absent = append(absent, "operstate: "+err.Error())
	}
	if r.Active = err == nil && text == "up"; !r.Active {
		return absent
	}
	speed, err := readCounter(filepath.Join(dir, "speed"))
	if err != nil {
		return append(absent, "speed: "+err.Error())
	}
	r.RateMbps = min(speed, rateMax)
	return absent
}

// readAttribute reads one attribute without the blanks around it.
func readAttribute(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", errors.New("absent here")
		}
		return "", errors.New("can't be read")
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, fileBytesMax)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", errors.New("can't be read")
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func readCounter(path string) (uint64, error) {
	text, err := readAttribute(path)
	if err != nil {
		return 0, err
	}
	return parseCounter(text)
}

// parseCounter reads a counter file's text.
func parseCounter(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q is no counter", ErrFormat, text)
	}
	return n, nil
}

// rateMax is beyond any link: 100 Tb/s in Mb/s.
const rateMax = 100_000_000

// parseRate reads "100 Gb/sec (4X EDR)" as Mb/s.
func parseRate(text string) (uint64, error) {
	number, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	gb, err := strconv.ParseFloat(number, 64)
	if err != nil ||
		!(gb >= 0 && gb*1000 <= rateMax) ||
		!strings.HasPrefix(rest, "Gb/sec") {
		return 0, fmt.Errorf("%w: %.40q is no rate", ErrFormat, text)
	}
	return uint64(gb*1000 + 0.5), nil
}
