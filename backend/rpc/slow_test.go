package rpc

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
)

// Who connects and says nothing holds no place for long.
func TestHandshakeHasADeadline(t *testing.T) {
	s := newSite(t)
	conf, err := auth.ServerTLS(auth.FilesIn(s.dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := Listen(Config{
		Engine:  s.engine,
		Socket:  filepath.Join(s.dir, "slow.sock"),
		Address: "127.0.0.1:0",
		TLS:     conf,
		Limits:  Limits{Limits: door.Limits{Handshake: 50 * time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	c, err := net.Dial("tcp", slow.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("not closed: %v", err)
	}
}
