package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// connectingMost is how many clients of a crowd are on their way in at a time:
// fewer than the kernel queues for a listener (somaxconn, 4,096), over which it
// drops them and they try again a second later.
const connectingMost = 2048

// connectTries bounds how often a client of a crowd begins again: the kernel
// resets connections that a server does not accept in time.
const connectTries = 20

// Meet has n clients connect, count themselves in, and wait for the last, as the
// processes of a job do. It returns how long that took
// from the first connection until the last client was released. One thread is
// all of them: a client costs its system calls and nothing else, so that it is
// the store that is measured.
func Meet(address string, l Layout, n int, limit time.Duration) (time.Duration, error) {
	to, err := sockaddr(address)
	if err != nil {
		return 0, err
	}
	h := &crowd{
		to:      to,
		layout:  l,
		n:       n,
		members: make(map[int32]*member, n),
	}
	h.compose()
	if h.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return 0, fmt.Errorf("storetest: %w", err)
	}
	defer h.close()
	begin := time.Now()
	err = h.run(begin.Add(limit))
	return time.Since(begin), err
}

func sockaddr(address string) (unix.Sockaddr, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("storetest: %w", err)
	}
	if ip := a.IP.To4(); ip != nil {
		return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(ip)}, nil
	}
	return &unix.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16())}, nil
}

// crowd is many clients in one thread.
type crowd struct {
	to      unix.Sockaddr
	layout  Layout
	n       int
	poll    int
	members map[int32]*member // by descriptor
	asks    [asked][]byte     // by step
	open    []byte            // what the last one says before it waits

	begun, connecting, released, tries int
}

// member is one client.
type member struct {
	fd   int
	step step
	got  []byte // of the answer to it
	room [8]byte
}

// step is what a client has asked for.
type step int

const (
	connects step = iota
	enters
	waits
	asked
)

// answers are the bytes that come back, by step.
var answers = [asked]int{enters: 8, waits: 1}

func (h *crowd) compose() {
	c := NewClient(nil, h.layout)
	one := binary.LittleEndian.AppendUint64(nil, 1)
	add := func(key string) []byte {
		return append(text([]byte{byte(c.codes[opAdd])}, key), one...)
	}
	h.asks[enters] = append(c.greeting(), add("/here")...)
	h.asks[waits] = text(append([]byte{byte(c.codes[opWait])}, one...), "/go")
	h.open = text(text([]byte{byte(c.codes[opSet])}, "/go"), "1")
}

// close hangs up on the spot: ten thousand connections that linger for a minute
// would leave the next crowd no port.
func (h *crowd) close() {
	for fd := range h.members {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(int(fd))
	}
	_ = unix.Close(h.poll)
}

func (h *crowd) run(until time.Time) error {
	events := make([]unix.EpollEvent, 1024)
	for h.released < h.n {
		for h.begun < h.n && h.connecting < connectingMost {
			if err := h.connect(); err != nil {
				return err
			}
			h.begun++
		}
		left := time.Until(until)
		if left <= 0 {
			return fmt.Errorf("%w: %d of %d clients are released", ErrTimeout, h.released, h.n)
		}
		got, err := unix.EpollWait(h.poll, events, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("storetest: %w", err)
		}
		for _, e := range events[:max(got, 0)] {
			if err := h.turn(h.members[e.Fd], e.Events); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *crowd) connect() error {
	family := unix.AF_INET
	if _, six := h.to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("storetest: %w", err)
	}
	m := &member{fd: fd}
	h.members[int32(fd)] = m
	if err := h.bind(fd); err != nil {
		return fmt.Errorf("storetest: %w", err)
	}
	if err := unix.Connect(fd, h.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("storetest: connect: %w", err)
	}
	h.connecting++
	e := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET,
		Fd:     int32(fd),
	}
	if err := unix.EpollCtl(h.poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("storetest: %w", err)
	}
	return nil
}

// perSource is how many clients of a crowd share an address: beyond half of the
// kernel's range of ports, looking for a free one takes longer than all the rest.
const perSource = 12000

// bind has the clients come from several addresses, where the store is on
// loopback: all of them are here.
func (h *crowd) bind(fd int) error {
	to, is := h.to.(*unix.SockaddrInet4)
	if !is || to.Addr[0] != 127 || h.n <= perSource {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(1 + h.begun/perSource%250)}})
}

// turn goes on with one client as far as it can.
func (h *crowd) turn(m *member, events uint32) error {
	if m == nil {
		return nil
	}
	if m.step == connects {
		if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			return h.again(m, errors.New("refused"))
		}
		return h.ask(m, enters)
	}
	if events&unix.EPOLLIN == 0 || m.step == asked {
		return nil
	}
	n, err := unix.Read(m.fd, m.room[len(m.got):answers[m.step]])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case m.step == enters && (err != nil || n == 0):
		return h.again(m, err)
	case err != nil || n == 0:
		return fmt.Errorf("storetest: a client was disconnected at its request %d: %w",
			m.step, errors.Join(err, net.ErrClosed))
	}
	if m.got = m.room[:len(m.got)+n]; len(m.got) < answers[m.step] {
		return nil
	}
	return h.answered(m)
}

func (h *crowd) answered(m *member) error {
	switch m.step {
	case enters:
		h.connecting--
		if int(binary.LittleEndian.Uint64(m.got)) == h.n {
			if err := h.send(m, h.open); err != nil {
				return err
			}
		}
		return h.ask(m, waits)
	default:
		m.step = asked
		h.released++
		return nil
	}
}

// again has a client start over.
func (h *crowd) again(m *member, why error) error {
	if h.tries++; h.tries > connectTries*h.n {
		return fmt.Errorf("storetest: clients are disconnected again and again: %w",
			errors.Join(why, net.ErrClosed))
	}
	h.connecting--
	delete(h.members, int32(m.fd))
	_ = unix.Close(m.fd)
	return h.connect()
}

func (h *crowd) ask(m *member, s step) error {
	m.step = s
	m.got = m.room[:0]
	return h.send(m, h.asks[s])
}

// send takes a request that the kernel has no room for, a few bytes, for a
// broken connection.
func (h *crowd) send(m *member, b []byte) error {
	n, err := unix.Write(m.fd, b)
	if err == nil && n == len(b) {
		return nil
	}
	if m.step == enters {
		return h.again(m, err)
	}
	return fmt.Errorf("storetest: request %d can't be sent: %w", m.step, errors.Join(err, net.ErrClosed))
}
