package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A screen runs in a child of a small guardian, which keeps the terminal's
// settings. A process that is killed outright can't put its terminal back: it
// would leave a shell without echo on the alternate screen. The guardian can.

// guardEnv marks processes below a guardian: one is enough for all.
const guardEnv = "FALCON_TERMINAL_GUARDIAN"

// Sequences for the terminal.
const (
	pushTitle = "\x1b[22;2t"
	popTitle  = "\x1b[23;2t"
	// end of a synchronised update, keyboard protocols popped, alternate screen
	// left, cursor shown in its own shape, mouse, focus and paste modes off,
	// colours back, links ended
	leaveScreen = "\x1b[?2026l\x1b[<1u\x1b[>4;0m\x1b[?1049l\x1b[?25h\x1b[0 q" +
		"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[?2027l\x1b[0m\x1b]8;;\x07\r"
	// what a console that was held has to find again
	enterScreen = "\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?1004h\x1b[?2004h"
)

// settle is how long what the child left behind may still write.
const settle = 50 * time.Millisecond

// exitError ends the process with a code and prints nothing.
type exitError int

func (e exitError) Error() string {
	return fmt.Sprintf("exit code %d", int(e))
}

// guardian owns the terminal on behalf of a child.
type guardian struct {
	fd    int
	saved *unix.Termios
	child *exec.Cmd
	name  string // of what runs, for the operator
	ends  string // what else ended with it
}

// guarded runs this command again below a guardian where it has a screen to
// draw on, and says whether it has. The error holds the child's exit code.
func guarded(screen bool, name, ends string) (bool, error) {
	if !screen || os.Getenv(guardEnv) != "" {
		return false, nil
	}
	g := &guardian{fd: int(os.Stdin.Fd()), name: name, ends: ends}
	saved, err := unix.IoctlGetTermios(g.fd, unix.TCGETS)
	if err != nil {
		return false, nil // no terminal to guard
	}
	g.saved = saved
	return true, g.superviseChild()
}

func (g *guardian) superviseChild() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The kernel signals the guardian's death to the child, which means the
	// thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// To set a terminal from behind would stop either of them.
	signal.Ignore(syscall.SIGTTOU)
	signals := make(chan os.Signal, 16)
	signal.Notify(
		signals,
		syscall.SIGINT,
		syscall.SIGTERM,
		syscall.SIGHUP,
		syscall.SIGQUIT,
		syscall.SIGTSTP,
		syscall.SIGCONT,
	)
	defer signal.Stop(signals)
	g.child = exec.Command(self, os.Args[1:]...)
	g.child.Stdin = os.Stdin
	g.child.Stdout = os.Stdout
	g.child.Stderr = os.Stderr
	g.child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", guardEnv, os.Getpid()))
	g.child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	g.writeTerminal(pushTitle)
	defer g.writeTerminal(popTitle)
	if err := g.child.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- g.child.Wait() }()
	for {
		select {
		case err := <-ended:
			return g.childEnded(err)
		case s := <-signals:
			g.forwardSignal(s)
		}
	}
}

func (g *guardian) writeTerminal(s string) {
	_, _ = os.Stdout.WriteString(s)
}

// forwardSignal sends a signal to the child. The terminal sends its own to both; a
// second one does no harm.
func (g *guardian) forwardSignal(s os.Signal) {
	switch s {
	case syscall.SIGTSTP:
		g.suspendWithChild()
	case syscall.SIGCONT:
	default:
		_ = g.child.Process.Signal(s)
	}
}

// suspendWithChild stops the child and the guardian with the terminal as the shell had
// it, and restores the child's modes when the job goes on.
func (g *guardian) suspendWithChild() {
	_ = g.child.Process.Signal(syscall.SIGSTOP)
	// It may draw until it is stopped; superviseChild collects its end.
	_ = unix.Waitid(
		unix.P_PID,
		g.child.Process.Pid,
		nil,
		unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT,
		nil,
	)
	drawn, err := unix.IoctlGetTermios(g.fd, unix.TCGETS)
	g.restoreTerminal()
	// To this thread, or it would run on for a moment; it returns when the shell
	// says so.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
	if err == nil {
		_ = unix.IoctlSetTermios(g.fd, unix.TCSETS, drawn)
	}
	g.writeTerminal(enterScreen)
	_ = g.child.Process.Signal(syscall.SIGCONT)
	_ = g.child.Process.Signal(syscall.SIGWINCH) // it draws everything again
}

func (g *guardian) restoreTerminal() {
	g.writeTerminal(leaveScreen)
	_ = unix.IoctlSetTermios(g.fd, unix.TCSETSF, g.saved) // what was typed for the console is dropped
}

// terminalChanged reports whether the child left the terminal's modes changed.
func (g *guardian) terminalChanged() bool {
	now, err := unix.IoctlGetTermios(g.fd, unix.TCGETS)
	return err == nil &&
		(now.Lflag != g.saved.Lflag || now.Iflag != g.saved.Iflag || now.Oflag != g.saved.Oflag)
}

func (g *guardian) childEnded(err error) error {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	status, _ := g.child.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() || g.terminalChanged() {
		time.Sleep(settle)
		g.restoreTerminal()
		fmt.Fprintln(os.Stderr, g.describeEnd(status))
	}
	switch {
	case status.Signaled():
		return exitError(128 + int(status.Signal()))
	case status.ExitStatus() != 0:
		return exitError(status.ExitStatus())
	}
	return nil
}

// describeEnd is one line on how the child ended.
func (g *guardian) describeEnd(s syscall.WaitStatus) string {
	how := fmt.Sprintf("ended with exit code %d and left the terminal as it was", s.ExitStatus())
	if s.Signaled() {
		how = "was killed by " + strings.ToUpper(unix.SignalName(s.Signal()))
	}
	line := fmt.Sprintf("falcon: the %s %s; the terminal is restored", g.name, how)
	if g.ends != "" {
		line += "; " + g.ends
	}
	return line
}

// reportLostGuardian prints one line of a child that outlived its guardian: the shell
// saw the guardian end and may have written its prompt on the alternate screen, where
// it is lost. While the guardian is still there, the shell has not written yet.
func reportLostGuardian() {
	guardian, err := strconv.Atoi(os.Getenv(guardEnv))
	if err != nil ||
		isAncestor(guardian, os.Getppid()) ||
		!term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	fmt.Fprint(
		os.Stderr,
		"\r\nfalcon: the process that guarded this terminal was killed; the screen has ended in order, Enter brings the prompt\r\n",
	)
}

// isAncestor reports whether pid is one process or above it: a console of `lab run` has that
// between itself and the guardian. A process whose parent ended is below another one.
func isAncestor(pid, of int) bool {
	for of > 1 {
		if of == pid {
			return true
		}
		of = parentOf(of)
	}
	return false
}

// parentOf is a process's parent, 0 where it is not known.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "PID (NAME) STATE PPID …": the name may hold spaces and brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
