package sshserver

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged has the kernel give a connection up whose other end has
// taken nothing for d: a cable that was pulled says nothing else.
func boundUnacknowledged(c net.Conn, d time.Duration) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without it the link's own watch still cuts
		_ = unix.SetsockoptInt(
			int(fd),
			unix.IPPROTO_TCP,
			unix.TCP_USER_TIMEOUT,
			int(d.Milliseconds()),
		)
	})
}
