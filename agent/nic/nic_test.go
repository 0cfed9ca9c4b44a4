package nic

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// tree is a sysfs that the test writes.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	return tree{t, t.TempDir()}
}

func (s tree) put(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s tree) link(path, target string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(s.root, target), path); err != nil {
		s.t.Fatal(err)
	}
}

// rdma puts a port there whose i-th counter file holds from+i.
func (s tree) rdma(device string, from uint64) string {
	dir := "class/infiniband/" + device + "/ports/1/"
	for i, f := range []string{
		"counters/port_xmit_wait", "hw_counters/np_cnp_sent", "hw_counters/rp_cnp_handled",
		"hw_counters/np_ecn_marked_roce_packets",
		"hw_counters/packet_seq_err",
		"hw_counters/local_ack_timeout_err", "hw_counters/implied_nak_seq_err",
		"hw_counters/rnr_nak_retry_err", "hw_counters/roce_adp_retrans",
		"hw_counters/out_of_sequence", "counters/link_downed",
		"counters/symbol_error", "counters/port_xmit_data", "counters/port_rcv_data",
	} {
		s.put(dir+f, strconv.FormatUint(from+uint64(i), 10))
	}
	s.put(dir+"rate", "400 Gb/sec (4X NDR)")
	s.put(dir+"state", "4: ACTIVE")
	return dir
}

// look takes one look without the goroutine.
func (s tree) look(p *Prober) []falcon.NICReading {
	p.cfg.Sysfs = s.root
	p.readPorts()
	return p.Latest(time.Now())
}

func prober() *Prober {
	return &Prober{cfg: Config{Node: "n1"}}
}

func TestReadsAPort(t *testing.T) {
	s := newTree(t)
	s.rdma("mlx5_0", 1000)
	p := prober()
	got := s.look(p)
	if len(got) != 1 {
		t.Fatalf("%d readings", len(got))
	}
	r := got[0]
	at := r.AtNs
	r.AtNs = 0
	want := falcon.NICReading{
		NIC:           "n1.nic0",
		RateMbps:      400_000,
		Active:        true,
		XmitWait:      1000,
		CNPSent:       1001,
		CNPHandled:    1002,
		ECNMarked:     1003,
		Retransmits:   1004 + 1005 + 1006 + 1007 + 1008,
		OutOfSequence: 1009,
		LinkDowned:    1010,
		SymbolErrors:  1011,
		XmitBytes:     4 * 1012,
		RcvBytes:      4 * 1013,
	}
	if r != want || time.Since(time.Unix(0, at)) > time.Minute {
		t.Fatalf("got  %+v\nwant %+v", r, want)
	}
	if again := p.Latest(time.Now()); again != nil {
		t.Fatalf("a reading was handed over twice: %v", again)
	}
	s.put("emulated", "by a test")
	if got = s.look(p); !got[0].Emulated {
		t.Fatal("an emulated tree passes for a real one")
	}
}

func TestCountersOnlyGrow(t *testing.T) {
	s := newTree(t)
	dir := s.rdma("mlx5_0", 1000)
	p := prober()
	s.put(dir+"hw_counters/out_of_sequence", strconv.Itoa(math.MaxUint32-9))
	s.look(p)
	s.put(dir+"hw_counters/out_of_sequence", "10") // 32 bits in hardware: it wrapped
	s.put(dir+"hw_counters/np_cnp_sent", "7")      // 64 bits: the driver was loaded again
	r := s.look(p)[0]
	if r.OutOfSequence != math.MaxUint32+11 || r.CNPSent != 1001+7 {
		t.Fatalf("out of sequence %d, CNP %d", r.OutOfSequence, r.CNPSent)
	}
	// A counter that can't be read now keeps its value, and comes back without a jump.
	if err := os.Remove(filepath.Join(s.root, dir, "hw_counters/np_cnp_sent")); err != nil {
		t.Fatal(err)
	}
	r = s.look(p)[0]
	if r.CNPSent != 1008 || !strings.Contains(r.Err, "np_cnp_sent") {
		t.Fatalf("CNP %d, err %q", r.CNPSent, r.Err)
	}
	s.put(dir+"hw_counters/np_cnp_sent", "9")
	if r = s.look(p)[0]; r.CNPSent != 1010 || r.Err != "" {
		t.Fatalf("CNP %d, err %q", r.CNPSent, r.Err)
	}
	// One that is new has no past.
	s.put(dir+"hw_counters/roce_adp_retrans", "not yet")
	p = prober()
	before := s.look(p)[0].Retransmits
	s.put(dir+"hw_counters/roce_adp_retrans", "5000000")
	if after := s.look(p)[0].Retransmits; after != before {
		t.Fatalf("a counter that came later made %d of %d", after, before)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	s := newTree(t)
	dir := s.rdma("mlx5_0", 5)
	p := prober()
	for _, c := range []struct{ file, text, say string }{
		{"rate", "fast", "rate"},
		{"counters/port_xmit_wait", "N/A (no PMA)", "not offered: port_xmit_wait"},
		{"state", "1: DOWN", ""},
	} {
		old, _ := os.ReadFile(filepath.Join(s.root, dir, c.file))
		s.put(dir+c.file, c.text)
		r := s.look(p)[0]
		if (r.Err == "") != (c.say == "") || !strings.Contains(r.Err, c.say) {
			t.Errorf("%s %q: err %q", c.file, c.text, r.Err)
		}
		if c.file == "state" && (r.Active || r.RateMbps != 0) {
			t.Errorf("a port that is down: %+v", r)
		}
		s.put(dir+c.file, strings.TrimSpace(string(old)))
	}
	// A port on InfiniBand has no congestion notifications to tell of.
	if err := os.Remove(filepath.Join(s.root, dir, "hw_counters/np_cnp_sent")); err != nil {
		t.Fatal(err)
	}
	s.put(dir+"link_layer", "InfiniBand")
	if r := s.look(p)[0]; r.Err != "" {
		t.Errorf("InfiniBand: err %q", r.Err)
	}
	if err := os.RemoveAll(filepath.Join(s.root, "class/infiniband/mlx5_0")); err != nil {
		t.Fatal(err)
	}
	if r := s.look(p)[0]; r.Err != "the port is gone" || r.Active || r.XmitWait != 5 || r.NIC != "n1.nic0" {
		t.Errorf("gone: %+v", r)
	}
}

func TestNamesGoByNumberAndStay(t *testing.T) {
	s := newTree(t)
	p := prober()
	for _, d := range []string{"mlx5_10", "mlx5_9", "mlx5_2"} {
		s.rdma(d, 1)
	}
	var order []string
	s.look(p)
	for _, o := range p.ports {
		order = append(order, o.device)
	}
	if strings.Join(order, " ") != "mlx5_2 mlx5_9 mlx5_10" {
		t.Fatalf("order %v", order)
	}
	s.rdma("mlx5_1", 1) // plugged in later
	got := s.look(p)
	if len(got) != 4 || got[3].NIC != "n1.nic3" || p.ports[3].device != "mlx5_1" {
		t.Fatalf("%v", got)
	}
}

// Hosts without RDMA have their physical Ethernet ports.
func TestEthernet(t *testing.T) {
	s := newTree(t)
	p := prober()
	for _, d := range []string{"eth1", "eth0"} {
		s.put("class/net/"+d+"/device/numa_node", "0")
		for f, v := range map[string]string{
			"operstate": "up", "speed": "25000", "carrier_down_count": "3",
			"statistics/tx_bytes": "70", "statistics/rx_bytes": "80",
			"statistics/rx_crc_errors": "9",
		} {
			s.put("class/net/"+d+"/"+f, v)
		}
	}
	s.put("class/net/lo/operstate", "unknown")
	s.put("class/net/eth1/operstate", "down")
	got := s.look(p)
	if len(got) != 2 || p.ports[0].device != "eth0" {
		t.Fatalf("%v", got)
	}
	if r := got[0]; !r.Active ||
		r.RateMbps != 25000 ||
		r.LinkDowned != 3 ||
		r.XmitBytes != 70 ||
		r.RcvBytes != 80 ||
		r.SymbolErrors != 9 ||
		r.Err != "" {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.Active || r.RateMbps != 0 || r.Err != "" {
		t.Errorf("down: %+v", r)
	}
	s.put("class/net/eth0/speed", "-1")
	if r := s.look(p)[0]; r.RateMbps != 0 || !strings.Contains(r.Err, "speed") {
		t.Errorf("no speed: %+v", r)
	}
}

// pci hangs a device below a bridge of a root complex.
func (s tree) pci(rootPort, address, vendor, class, numa string) string {
	dir := "devices/pci0000:" + rootPort + "/" + address
	s.put(dir+"/vendor", vendor)
	s.put(dir+"/class", class)
	s.put(dir+"/numa_node", numa)
	s.link("bus/pci/devices/"+filepath.Base(address), dir)
	return dir
}

func TestPortsByPCIDistance(t *testing.T) {
	s := newTree(t)
	s.pci("10", "0000:10:01.0/0000:11:00.0", gpuVendor, "0x030200", "0")
	s.pci("10", "0000:10:02.0/0000:15:00.0", gpuVendor, "0x030200", "0")
	s.pci("80", "0000:80:01.0/0000:81:00.0", gpuVendor, "0x030200", "1") // on its port's node, not its root
	s.pci("c0", "0000:c0:01.0/0000:c1:00.0", gpuVendor, "0x030200", "2") // nothing is near
	s.pci("10", "0000:10:03.0/0000:19:00.0", "0x8086", "0x020000", "0")
	for i, n := range []string{
		s.pci("10", "0000:10:01.0/0000:12:00.0", "0x15b3", "0x020700", "0"),
		s.pci("10", "0000:10:02.0/0000:16:00.0", "0x15b3", "0x020700", "0"),
		s.pci("90", "0000:90:01.0/0000:91:00.0", "0x15b3", "0x020700", "1"),
	} {
		d := "mlx5_" + strconv.Itoa(i)
		s.rdma(d, 1)
		s.link("class/infiniband/"+d+"/device", n)
	}
	p := prober()
	p.cfg.Of = map[falcon.Device]falcon.NIC{"n1.g1": "n1.nic7"}
	s.look(p)
	for device, want := range map[falcon.Device]falcon.NIC{
		"n1.g0": "n1.nic0", "n1.g1": "n1.nic7", "n1.g2": "n1.nic2", "n1.g3": "", "n2.g0": "",
		"n1.g9": "",
	} {
		if got := p.Of(device); got != want {
			t.Errorf("%s leaves by %q, want %q", device, got, want)
		}
	}
}

// Two ports on the same switch are equally near; one port alone is everybody's.
func TestUnclearAndOnlyPorts(t *testing.T) {
	s := newTree(t)
	s.pci("10", "0000:10:01.0/0000:11:00.0", gpuVendor, "0x030200", "0")
	nic := s.pci("10", "0000:10:01.0/0000:12:00.0", "0x15b3", "0x020700", "0")
	s.rdma("mlx5_0", 1)
	s.link("class/infiniband/mlx5_0/device", nic)
	p := prober()
	s.look(p)
	if p.Of("n1.g0") != "n1.nic0" || p.Of("n1.g5") != "n1.nic0" {
		t.Errorf("the only port: %q %q", p.Of("n1.g0"), p.Of("n1.g5"))
	}
	for f, v := range map[string]string{"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE"} {
		s.put("class/infiniband/mlx5_0/ports/2/"+f, v)
	}
	if s.look(p); p.Of("n1.g0") != "" {
		t.Errorf("one of two ports of one device: %q", p.Of("n1.g0"))
	}
}

// The goroutine looks again and again, and ends with Close.
func TestOpenAndClose(t *testing.T) {
	s := newTree(t)
	dir := s.rdma("mlx5_0", 1)
	p := Open(Config{Node: "n1", Sysfs: s.root, Period: periodMin})
	defer p.Close()
	until(t, func() bool { return len(p.Latest(time.Now())) == 1 })
	s.put(dir+"hw_counters/np_cnp_sent", "77777")
	until(t, func() bool {
		r := p.Latest(time.Now())
		return len(r) == 1 && r[0].CNPSent == 77777
	})
	empty := Open(Config{Node: "n1", Sysfs: t.TempDir()})
	defer empty.Close()
	if r := empty.Latest(time.Now()); len(r) != 0 {
		t.Errorf("readings of nothing: %v", r)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("gave up waiting")
		}
	}
}

// A read that does not come back (here: of a pipe that nobody writes) stalls
// neither Latest nor Of, and is reported as such.
func TestAStalledReadIsEvidence(t *testing.T) {
	s := newTree(t)
	dir := s.rdma("mlx5_0", 1)
	p := Open(Config{Node: "n1", Sysfs: s.root, Period: periodMin})
	until(t, func() bool { return p.Latest(time.Now()) != nil })
	file := filepath.Join(s.root, dir, "rate")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	until(t, func() bool {
		r := p.Latest(later)
		return len(r) == 1 &&
			strings.Contains(r[0].Err, "has not answered") &&
			p.Of("n1.g0") == "n1.nic0"
	})
	w, err := os.OpenFile(file, os.O_WRONLY, 0) // the driver answers
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(file)
	_ = w.Close()
	p.Close()
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]uint64{
		"2.5 Gb/sec (1X SDR)":   2500,
		"100 Gb/sec (4X EDR)\n": 100_000,
		"0 Gb/sec":              0,
	} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
}

func FuzzAttributes(f *testing.F) {
	f.Add("400 Gb/sec (4X NDR)", "12", true)
	f.Add("NaN Gb/sec", "18446744073709551615", false)
	f.Add("4: ACTIVE", "-1", true)
	f.Fuzz(func(t *testing.T, rate, count string, bits32 bool) {
		if mbps, err := parseRate(rate); mbps > rateMax || (err != nil && !errors.Is(err, ErrFormat)) {
			t.Fatalf("%q is %d Mb/s, %v", rate, mbps, err)
		}
		n, err := parseCounter(count)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatalf("%q: %v", count, err)
		}
		m := meter{last: n, total: n}
		for _, raw := range []uint64{1, n, n / 2, math.MaxUint64, 0} {
			before := m.total
			if m.addReading(raw, bits32); m.total < before || unitsOf(m.total, 4) < m.total {
				t.Fatalf("%d fell to %d at %d", before, m.total, raw)
			}
		}
	})
}
