package procstat

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const tail = " S 1 2 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 5 0 123456 0 0\n"

// A process's name holds what its owner likes; it is never read as a field.
func TestRead(t *testing.T) {
	proc := t.TempDir()
	want := Stat{
		State:   'S',
		Parent:  1,
		Session: 77,
		Threads: 5,
		Start:   123456,
	}
	for text, ok := range map[string]bool{
		"7 (sh)" + tail:               true,
		"7 (a) Z 1 1 1 1 1 1)" + tail: true,
		"7 ()) ()" + tail:             true,
		"7 sh" + tail:                 false,
		"7 (sh)" + strings.Replace(tail, "77", "x", 1): false,
		"7 (sh) S 1 2 3\n": false,
		"7 (sh)":           false,
		"":                 false,
	} {
		if err := errors.Join(
			os.MkdirAll(filepath.Join(proc, "7"), 0o700),
			os.WriteFile(filepath.Join(proc, "7", "stat"), []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		got, err := Read(proc, 7)
		if ok && (err != nil || got != want) || !ok && !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := Read(proc, 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	if got, err := Read("/proc", os.Getpid()); err != nil ||
		got.State != 'R' && got.State != 'S' ||
		got.Start == 0 {
		t.Errorf("this process: %+v, %v", got, err)
	}
}

func TestParseStatus(t *testing.T) {
	st, err := ParseStatus(9, "Name:\tNSpid: 3\nUid:\t1\t2\t3\t4\nNSpid:\t9\t7\n")
	if err != nil ||
		!slices.Equal(st.Numbers, []int{9, 7}) ||
		!slices.Equal(st.Users, []uint32{1, 2, 3, 4}) {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := ParseStatus(9, "Uid:\t1\n"); err != nil || !slices.Equal(st.Numbers, []int{9}) {
		t.Errorf("an old kernel: %+v, %v", st, err)
	}
	for _, bad := range []string{"", "NSpid:\t9\n", "Uid:\tx\n", "Uid:\n"} {
		if st, err := ParseStatus(9, bad); err == nil {
			t.Errorf("%q: %+v", bad, st)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add("Uid:\t1\t2\t3\t4\nNSpid:\t9\t7\n")
	f.Fuzz(func(t *testing.T, text string) {
		st, err := ParseStatus(9, text)
		if err == nil && (len(st.Numbers) == 0 || len(st.Users) == 0) {
			t.Errorf("%+v", st)
		}
	})
}

// A signal reaches the process that was started then, also one that has ended and is not collected,
// and none that has its number by now.
func TestSignal(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	st, err := Read("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	if sent, err := Signal("/proc", pid, st.Start+1, unix.SIGKILL); sent ||
		err != nil ||
		!Runs("/proc", pid, st.Start) {
		t.Errorf("to another process of that number: sent %t, %v", sent, err)
	}
	if sent, err := Signal("/proc", pid, st.Start, unix.SIGKILL); !sent || err != nil {
		t.Errorf("sent %t, %v", sent, err)
	}
	for Runs("/proc", pid, st.Start) { // until it is a zombie
		time.Sleep(time.Millisecond)
	}
	if sent, err := Signal("/proc", pid, st.Start, unix.SIGKILL); !sent || err != nil {
		t.Errorf("to a zombie: sent %t, %v", sent, err)
	}
	_ = child.Wait()
	if sent, err := Signal("/proc", pid, st.Start, unix.SIGKILL); sent || err != nil {
		t.Errorf("to a process that is gone: sent %t, %v", sent, err)
	}
}
