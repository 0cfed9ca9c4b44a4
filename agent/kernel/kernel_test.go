package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Lines as machines write them, with what they mean; the last ones mean nothing to training.
var lines = []struct {
	line string
	kind Kind
	code int
	pci  string
	pid  int
	dead bool
}{
	{
		"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
		Xid, 79, "0000:3b:00", 0, true,
	},
	{
		"NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
		Xid, 63, "0000:10:1c", 1896, false,
	},
	{
		"NVRM: Xid (PCI:0000:C1:00): 94, pid='2411', name=python, Contained: SM (0x1). RST: No, D-RST: No",
		Xid, 94, "0000:c1:00", 2411, false,
	},
	{
		"NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", Xid, 31,
		"0000:01:00", 0, false,
	},
	{
		"NVRM: Xid (PCI:0000:5d:00): 119, pid=4107, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
		Xid, 119, "0000:5d:00", 4107, true,
	},
	{"NVRM: Xid (PCI:0000:5d:00): 1234, something new", Xid, 1234, "0000:5d:00", 0, false},
	{
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error (First)",
		Switch, 12028, "0000:c1:00.0", 0, false,
	},
	{
		"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", Switch,
		20034, "0000:06:00.0", 0, true,
	},
	{
		"Out of memory: Killed process 21347 (python) total-vm:81920000kB, anon-rss:64230000kB",
		OOM, 0, "", 21347, false,
	},
	{"Memory cgroup out of memory: Killed process 812 (pt_data_worker) total-vm:1kB", OOM, 0, "", 812, false},
	{
		"python[7311]: segfault at 0 ip 00007f2a sp 00007ffd error 4 in libtorch_cpu.so", Crash, 0,
		"", 7311, false,
	},
	{"pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0", PCIe, 0, "0000:3b:00.0", 0, false},
	{
		"pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0", PCIe, 0,
		"0000:3b:00.0", 0, false,
	},
	{
		"nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
		PCIe, 0, "0000:3b:00.0", 0, false,
	},
	{"pcieport 0000:80:03.0: pciehp: Slot(3): Link Down", PCIe, 0, "0000:80:03.0", 0, false},
	{"mlx5_core 0000:17:00.0 ens1f0np0: Link down", LinkDown, 0, "", 0, false},
	{"mlx5_core 0000:17:00.0: Port module event: module 0, Cable unplugged", LinkDown, 0, "", 0, false},
	{
		"mlx5_core 0000:17:00.0: poll_health:828:(pid 0): device's health compromised - reached miss count",
		LinkDown, 0, "", 0, false,
	},
	{"bnxt_en 0000:01:00.0 eno1: NIC Link is Down", LinkDown, 0, "", 0, false},
	{"EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0", Memory, 0, "", 0, false},
	{"mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010092", Memory, 0, "", 0, false},
	{"INFO: task python:4107 blocked for more than 120 seconds.", Stuck, 0, "", 4107, false},
	{"watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python:99]", Stuck, 0, "", 0, false},
	{"nfs: server ckpt-store not responding, still trying", Storage, 0, "", 0, false},
	{"BUG: unable to handle page fault for address: ffffa", Crash, 0, "", 0, true},
	{"mlx5_core 0000:17:00.0 ens1f0np0: Link up", "", 0, "", 0, false},
	{"eth0: renamed from veth1", "", 0, "", 0, false},
	{"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15", "", 0, "", 0, false},
	{"service unit is down for maintenance", "", 0, "", 0, false},
	{"audit: type=1400 apparmor=\"DENIED\" comm=\"killed process\"", "", 0, "", 0, false},
}

func TestClassify(t *testing.T) {
	for _, c := range lines {
		f, ok := Classify(Record{Text: c.line})
		if ok != (c.kind != "") ||
			f.Kind != c.kind ||
			f.Code != c.code ||
			f.PCI != c.pci ||
			f.PID != c.pid ||
			f.Fatal != c.dead {
			t.Errorf("%s\ngot %+v", c.line, f)
		}
		if ok && (f.Text == "" || f.Advice == "" || f.Line != c.line) {
			t.Errorf("%s\nhas no meaning: %+v", c.line, f)
		}
	}
}

func TestParseRecord(t *testing.T) {
	for in, want := range map[string]Record{
		"6,339,5140900,-;NET: Registered protocol family 10": {
			6,
			5140900 * time.Microsecond,
			"NET: Registered protocol family 10",
		},
		"12,340,5690716,c,caller=T1;udevd[80]: starting; version 181": {
			4,
			5690716 * time.Microsecond,
			"udevd[80]: starting; version 181",
		},
		"[    5.140900] NVRM: Xid (PCI:0000:3b:00): 79": {
			6,
			5140900 * time.Microsecond,
			"NVRM: Xid (PCI:0000:3b:00): 79",
		},
		" SUBSYSTEM=acpi":              {},
		"":                             {},
		";":                            {},
		"a,b,c,d;x":                    {},
		"1,2;x":                        {},
		"1,2,-5,-;x":                   {},
		"1,2,99999999999999999999,-;x": {},
		"[nan] x":                      {},
		"[1e300] x":                    {},
		"[-1] x":                       {},
		"[":                            {},
	} {
		got, ok := ParseRecord(in)
		if ok != (want != Record{}) || got != want {
			t.Errorf("%q: got %+v %t, want %+v", in, got, ok, want)
		}
	}
}

// The recorded text goes through the real reader: the messages are emulated, the reading is not.
func TestReadRecorded(t *testing.T) {
	path := filepath.Join("testdata", "recorded.kmsg")
	l, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var kinds []Kind
	take := func(r Record) {
		if f, ok := Classify(r); ok {
			kinds = append(kinds, f.Kind)
		}
	}
	if lost, err := l.Read(take); lost || err != nil {
		t.Fatal(lost, err)
	}
	if want := []Kind{PCIe, Xid, Xid, OOM, LinkDown}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	kinds = nil
	if _, err := l.Read(take); err != nil || len(kinds) > 0 {
		t.Errorf("read again: %v %v", kinds, err)
	}
}

// Lines that are cut between two reads, without end, or not the kernel's, harm nothing.
func TestReadHostile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(
		path,
		[]byte("junk\x00\xff\n"+strings.Repeat("x", 3*recordBytes)+
			"\n6,1,1,-;Out of memory: Killed process 7 (x)\n6,2,2,-;Out of mem"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var got []int
	take := func(r Record) {
		if f, ok := Classify(r); ok {
			got = append(got, f.PID)
		}
	}
	_, _ = l.Read(take)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("ory: Killed process 8 (y)\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = l.Read(take)
	if !slices.Equal(got, []int{7, 8}) {
		t.Errorf("got %v", got)
	}
}

// What can't be read is refused with the remedy, and a pipe is never waited for.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo:                       "neither",
		filepath.Join(dir, "none"): "set logs.kernel",
		dir:                        "neither",
	} {
		_, err := Open(path, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := sourceError("/dev/kmsg", unix.EPERM).Error(); !strings.Contains(got, "CAP_SYSLOG") {
		t.Error(got)
	}
}

// The machine's own messages are read where that is allowed, and quickly.
func TestReadThisKernel(t *testing.T) {
	l, err := Open("/dev/kmsg", false)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	began := time.Now()
	n := 0
	if _, err := l.Read(func(r Record) {
		n++
		at := Booted(time.Now()).Add(r.Since)
		if at.After(time.Now().Add(time.Minute)) {
			t.Errorf("a message of the future: %v at %s", r, at)
		}
	}); err != nil || n == 0 || time.Since(began) > 2*readWithin {
		t.Errorf("%d records in %s: %v", n, time.Since(began), err)
	}
}

func FuzzRecord(f *testing.F) {
	for _, c := range lines {
		f.Add("6,1,1,-;" + c.line)
		f.Add("[1.5] " + c.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := ParseRecord(line)
		if !ok {
			return
		}
		if r.Level < 0 || r.Level > 7 || r.Since < 0 || len(r.Text) > lineMost {
			t.Errorf("%q: %+v", line, r)
		}
		if f, ok := Classify(r); ok && (f.Text == "" || f.Advice == "" || f.PID < 0 || f.Code < 0) {
			t.Errorf("%q: %+v", line, f)
		}
	})
}
