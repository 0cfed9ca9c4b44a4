package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/backend/tcpstore"
)

// Bounds of a keeper.
const (
	startWait    = 10 * time.Second // for a store to say that it serves
	fenceWait    = time.Second      // for its answer to a fence
	endWait      = 2 * time.Second  // for it to end by itself
	restartFirst = 100 * time.Millisecond
	restartMost  = 5 * time.Second
	upAfter      = 2 * time.Second  // that it serves, before News says so
	steadyAfter  = 30 * time.Second // a store that lived so long is started again at once
	bindWait     = 3 * time.Second  // for the address, where the store of before still ends
	bindEvery    = 50 * time.Millisecond
	saidMost     = 512 // bytes of a line that the store's process logs
)

// ErrStuck says that the store's process neither answers nor ends.
var ErrStuck = errors.New("keeper: the store's process does not end")

// Options of a keeper.
type Options struct {
	Address    string // HOST:PORT, port 0 = any
	Exposed    bool   // listen on an address that others can reach
	Generation uint64 // of the first store
	Budget     int64  // of memory, in bytes; 0 = tcpstore.DefaultBudget
	Log        *slog.Logger

	// Command makes the store's process from its arguments; nil = this program.
	Command func(args ...string) *exec.Cmd
}

// Keeper keeps one store running. All methods may be called by anybody at any
// time.
type Keeper struct {
	o       Options
	address string
	socket  *os.File // that stores inherit
	quit    chan struct{}
	done    chan struct{}

	mu            sync.Mutex
	generation    uint64
	child         *child    // nil while none runs
	trouble       string    // why nothing is served, "" = it is
	since         time.Time // since when it serves
	fell          string    // why it stopped to serve, until News has said so
	announcedDown bool      // News has said that it is down
	starts        int
}

// Open listens, and starts the first store. An address that can't be used is an
// error of tcpstore.Bind; a store that can't be started is tried again, see
// Trouble.
func Open(o Options) (*Keeper, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Command == nil {
		o.Command = self
	}
	if o.Budget == 0 {
		o.Budget = tcpstore.DefaultBudget
	}
	socket, address, err := bind(o)
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		o:          o,
		address:    address,
		socket:     socket,
		quit:       make(chan struct{}),
		done:       make(chan struct{}),
		generation: o.Generation,
		trouble:    "it is being started",
	}
	go k.run()
	return k, nil
}

// self is this very program, even where its file was replaced meanwhile: another
// version may have other arguments.
func self(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Args[0] = os.Args[0]
	return c
}

// bind listens and keeps nothing but the descriptor. The store of an engine that
// was killed may hold the address for a moment.
func bind(o Options) (*os.File, string, error) {
	for end := time.Now().Add(bindWait); ; time.Sleep(bindEvery) {
		l, err := tcpstore.Bind(o.Address, o.Exposed)
		if errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		f, err := l.File()
		address := l.Addr().String()
		if err = errors.Join(err, l.Close()); err != nil {
			return nil, "", fmt.Errorf("keeper: %w", err)
		}
		return f, address, nil
	}
}

// Addr is where stores listen.
func (k *Keeper) Addr() string { return k.address }

// Trouble is why nothing is served now, empty while a store serves.
func (k *Keeper) Trouble() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// News is what an operator should hear since the last call: that the store has
// ended, and that one serves again, once it has done so for upAfter. A store that
// comes and goes is said to be down, once.
func (k *Keeper) News() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fell != "" && !k.announcedDown {
		out = append(out, "the rendezvous store is down, and a job that is meeting loses its keys: "+k.fell)
		k.announcedDown = true
	}
	k.fell = ""
	if k.announcedDown && k.trouble == "" && time.Since(k.since) >= upAfter {
		out = append(out, "the rendezvous store serves again, without the keys of before")
		k.announcedDown = false
	}
	return out
}

// Pid is the store's process, 0 while there is none.
func (k *Keeper) Pid() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.child == nil || k.child.cmd.Process == nil {
		return 0
	}
	return k.child.cmd.Process.Pid
}

// Fence has the store refuse, and drop, what is older than generation; see
// tcpstore.Server.Fence. It returns within fenceWait and the time that a process
// takes to be killed.
func (k *Keeper) Fence(generation uint64) error {
	k.mu.Lock()
	if generation < k.generation {
		defer k.mu.Unlock()
		return fmt.Errorf("%w: generation %d is in force, not %d",
			tcpstore.ErrFenced, k.generation, generation)
	}
	k.generation = generation
	c := k.child
	k.mu.Unlock()
	if c == nil {
		return nil // what was there is lost, and the next one begins with this generation
	}
	return c.fence(generation, k.o.Log)
}

// Close ends the store and waits for it.
func (k *Keeper) Close() error {
	k.mu.Lock()
	select {
	case <-k.quit:
	default:
		close(k.quit)
	}
	c := k.child
	k.mu.Unlock()
	if c != nil {
		c.end()
	}
	<-k.done
	return nil
}

// run starts stores until Close. It stays on one thread: the parent-death signal
// is sent when the thread that started a process ends.
func (k *Keeper) run() {
	runtime.LockOSThread()
	defer close(k.done)
	defer k.socket.Close()
	pause := restartFirst
	for {
		began := time.Now()
		err := k.once()
		if time.Since(began) >= steadyAfter {
			pause = restartFirst
		}
		select {
		case <-k.quit:
			return
		default:
		}
		k.down(err, pause)
		select {
		case <-k.quit:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, restartMost)
	}
}

func (k *Keeper) down(err error, pause time.Duration) {
	why := "its process has ended"
	if err != nil {
		why += ": " + err.Error()
	}
	k.mu.Lock()
	k.trouble, k.fell = why, why
	k.mu.Unlock()
	k.o.Log.Error(
		"the rendezvous store is down, its keys are lost and its clients disconnected",
		"why",
		why,
		"again_in",
		pause,
	)
}

// once starts a store and returns when it has ended.
func (k *Keeper) once() error {
	c, err := k.begin()
	if err != nil || c == nil {
		return err
	}
	late := time.AfterFunc(startWait, c.kill)
	defer late.Stop()
	go c.listen(func() {
		late.Stop()
		k.up()
	})
	err = c.cmd.Wait()
	c.control.Close()
	<-c.heard
	k.mu.Lock()
	k.child = nil
	k.mu.Unlock()
	close(c.ended)
	return err
}

// begin starts a process. It is the keeper's child before it runs, so that no
// fence can pass it by; nil once the keeper is closed.
func (k *Keeper) begin() (*child, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.quit:
		return nil, ours.Close()
	default:
	}
	c := newChild(ours)
	c.cmd = k.o.Command(k.args()...)
	c.cmd.ExtraFiles = []*os.File{k.socket, theirs}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr = &lines{log: k.o.Log}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("keeper: it can't be started: %w", err), ours.Close())
	}
	k.child = c
	k.starts++
	return c, nil
}

func (k *Keeper) args() []string {
	return []string{
		"store",
		"--inherited",
		"--generation", strconv.FormatUint(k.generation, 10),
		"--budget", strconv.FormatInt(k.o.Budget, 10),
	}
}

func (k *Keeper) up() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble = ""
	k.since = time.Now()
	if k.starts > 1 {
		k.o.Log.Info("the rendezvous store serves again", "generation", k.generation)
	}
}

// pair is a connected pair of sockets: the keeper's end and the store's.
func pair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(
		unix.AF_UNIX,
		unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		0,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("keeper: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// lines hands what a process writes to the log, a line at a time.
type lines struct {
	log  *slog.Logger
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := strings.Cut(string(l.rest), "\n")
		if !whole && len(line) < saidMost {
			return len(b), nil
		}
		l.log.Warn("the rendezvous store's process", "says", line[:min(len(line), saidMost)])
		l.rest = []byte(rest)
	}
}
