package tcpstore

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

var (
	storeScale = flag.Bool("store-scale", false,
		"TestRelease: up to 10,000 clients, beside the installed PyTorch's server")
	storeSizes = flag.String("store-sizes", "1000,2000,4800,8000,10000", "TestRelease: numbers of clients")
	storeRuns  = flag.Int("store-runs", 3, "TestRelease: runs of each, of which the median is shown")
)

// asServer makes this test binary serve a store, so that clients and server
// share neither descriptors nor a scheduler.
const asServer = "FALCON_TEST_AS_STORE"

func init() {
	if os.Getenv(asServer) == "" {
		return
	}
	LimitMemory(DefaultBudget)
	s, err := Listen("127.0.0.1:0", Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("store", s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if s.Close() != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// other is a store in another process.
type other struct {
	name, address string
	pid           int
}

// start runs a command that prints a name and an address, and serves until its
// input ends.
func start(t testing.TB, c *exec.Cmd) other {
	t.Helper()
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	name, address, ok := strings.Cut(strings.TrimSpace(line), " ")
	if !ok {
		t.Fatalf("the server said %q", line)
	}
	if !strings.Contains(address, ":") {
		address = "127.0.0.1:" + address
	}
	return other{name, address, c.Process.Pid}
}

func ours(t testing.TB) other {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asServer+"=1")
	return start(t, c)
}

// peakMiB is the most memory that a process has had.
func peakMiB(t testing.TB, pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	var kb float64
	_, err = fmt.Sscan(string(rest), &kb)
	must(t, err)
	return kb / 1024
}

// releaseLimit is for one run.
const releaseLimit = 2 * time.Minute

// release has n clients meet: what a job does first. It returns when the last
// one is released.
func release(t *testing.T, address string, l storetest.Layout, n int) time.Duration {
	t.Helper()
	took, err := storetest.Meet(address, l, n, releaseLimit)
	must(t, err)
	return took
}

// All clients are released, in either layout; the next job meets again.
func TestRelease(t *testing.T) {
	if *storeScale {
		releaseAtScale(t)
		return
	}
	for _, l := range layouts {
		release(t, ours(t).address, l, 500)
	}
}

// pytorchs is PyTorch's own store. It looks up the name of each client that connects,
// for its log, while the next one waits: a resolver that drops a query costs 5 s. In a
// mount namespace of its own it finds no resolver, and the lookups return at once.
func pytorchs(t testing.TB, python string, alone bool) other {
	if !alone {
		return start(t, exec.Command(python, "testdata/server.py"))
	}
	return start(
		t,
		exec.Command(
			"unshare",
			"-m", "sh",
			"-c", `mount --bind testdata/nsswitch.conf /etc/nsswitch.conf && exec "$0" testdata/server.py`,
			python,
		),
	)
}

// paper's fig. 10, read off the plot: seconds on a cluster of as many devices.
var paper = map[int][2]string{
	1000:  {"10", "10"},
	2000:  {"20", "10"},
	4800:  {"", ""},
	8000:  {"430", "10"},
	10000: {"780", "10"},
}

func releaseAtScale(t *testing.T) {
	python := torch(t)
	fmt.Printf("%-8s %12s %12s %16s %14s %22s\n",
		"clients", "this store", "its memory", "PyTorch's own", "its memory",
		"FlashRecovery fig. 10")
	fmt.Printf("%-8s %12s %12s %16s %14s %22s\n",
		"", "s, measured", "MiB", "s, measured", "MiB", "s: serial, parallel")
	late := false
	alone := exec.Command("unshare", "-m", "true").Run() == nil
	for _, size := range strings.Split(*storeSizes, ",") {
		n, err := strconv.Atoi(size)
		must(t, err)
		var a, b []float64
		var am, bm float64
		for range *storeRuns {
			theirs := pytorchs(t, python, alone)
			mine := ours(t)
			layout := layoutOf(theirs.name)
			a = append(a, release(t, mine.address, layout, n).Seconds())
			am = max(am, peakMiB(t, mine.pid))
			if late {
				continue // more clients than it can serve in time
			}
			took, err := storetest.Meet(theirs.address, layout, n, releaseLimit)
			late = err != nil // then more clients are not tried
			b, bm = append(b, took.Seconds()), max(bm, peakMiB(t, theirs.pid))
		}
		p := paper[n]
		other := "not tried"
		switch {
		case late && len(b) > 0:
			other = fmt.Sprintf("over %.0f", releaseLimit.Seconds())
		case len(b) > 0:
			other = fmt.Sprintf("%.2f", middle(b))
		}
		fmt.Printf("%-8d %12.2f %12.0f %16s %14.0f %12s, %8s\n",
			n, middle(a), am, other, bm, p[0], p[1])
	}
	if alone {
		fmt.Println(
			"PyTorch's own looks up each client's name while the next one waits; here no resolver is asked",
		)
	} else {
		fmt.Println(
			"PyTorch's own waits for this machine's resolver, once a client; run as root to leave that out",
		)
	}
	for _, l := range layouts {
		fmt.Printf("10000 clients, this store, %s layout: %.2f s\n",
			l, release(t, ours(t).address, l, 10000).Seconds())
	}
}

// layoutOf is what a version of PyTorch speaks.
func layoutOf(version string) storetest.Layout {
	if strings.HasPrefix(version, "1.") || strings.HasPrefix(version, "2.0.") {
		return storetest.Legacy
	}
	return storetest.Current
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkMeet is ten thousand clients that meet in a store of another
// process, from the first connection until the last is released.
func BenchmarkMeet(b *testing.B) {
	for _, l := range layouts {
		b.Run(l.String(), func(b *testing.B) {
			for range b.N {
				s := ours(b)
				took, err := storetest.Meet(s.address, l, 10000, releaseLimit)
				must(b, err)
				b.ReportMetric(took.Seconds(), "s/meeting")
				b.ReportMetric(peakMiB(b, s.pid), "MiB")
			}
		})
	}
}
