package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/failslow/falcon/backend/clock"
)

// ErrPeer is wrapped where a caller can't be identified.
var ErrPeer = errors.New("auth: unknown caller")

// PeerCred is what the kernel says about the process behind a unix socket.
type PeerCred struct {
	credentials.CommonAuthInfo
	UID, PID int
}

// AuthType names the method for gRPC.
func (PeerCred) AuthType() string { return "unix-peer" }

// SocketCredentials identifies callers of a unix socket by SO_PEERCRED. The
// bytes on the wire stay as they are: clients dial with insecure credentials.
func SocketCredentials() credentials.TransportCredentials {
	return ServerOnly("unix-peer", func(c net.Conn) (credentials.AuthInfo, error) {
		uc, ok := c.(*net.UnixConn)
		if !ok {
			return nil, fmt.Errorf("%w: not a unix socket", ErrPeer)
		}
		cred, err := peerCred(uc)
		if err != nil {
			return nil, err
		}
		return PeerCred{
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
			UID:            int(cred.Uid),
			PID:            int(cred.Pid),
		}, nil
	})
}

// ServerOnly makes credentials for a server that learns from the connection itself
// who the caller is; the bytes on the wire stay as they are.
func ServerOnly(
	protocol string,
	identify func(net.Conn) (credentials.AuthInfo, error),
) credentials.TransportCredentials {
	return serverOnly{protocol, identify}
}

type serverOnly struct {
	protocol string
	identify func(net.Conn) (credentials.AuthInfo, error)
}

func (s serverOnly) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info, err := s.identify(c)
	return c, info, err
}

func peerCred(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPeer, err)
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPeer, err)
	}
	return cred, nil
}

func (serverOnly) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("%w: these credentials are for servers", ErrPeer)
}

func (s serverOnly) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: s.protocol}
}
func (s serverOnly) Clone() credentials.TransportCredentials { return s }
func (serverOnly) OverrideServerName(string) error           { return nil }

// FromContext identifies the caller of an RPC: by the verified certificate on
// TLS, by the peer's user id on a unix socket, by this process's own word on a
// pipe inside it. The engine's own user and root are admin on the socket;
// anyone else is refused there, whatever the file's mode says.
func FromContext(ctx context.Context) (Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, fmt.Errorf("%w: the transport names no peer", ErrPeer)
	}
	switch info := p.AuthInfo.(type) {
	case credentials.TLSInfo:
		return certified(info, p.Addr.String())
	case Certified:
		return certified(info.Certificate(), p.Addr.String())
	case PeerCred:
		return fromSocket(info, os.Getuid())
	case Vouched:
		return fromVouched(info)
	}
	return Identity{}, fmt.Errorf("%w: the transport proves nothing", ErrPeer)
}

// Certified is the AuthInfo of a connection on which TLS has verified a
// certificate, wrapped by whoever let it in.
type Certified interface {
	credentials.AuthInfo
	Certificate() credentials.TLSInfo
}

func certified(info credentials.TLSInfo, from string) (Identity, error) {
	id, err := FromChains(info.State.VerifiedChains)
	if err == nil {
		err = unexpired(info.State.VerifiedChains[0][0], time.Now(), clock.Now())
	}
	id.From = from
	return id, err
}

// unexpired checks a certificate again: a connection may outlive the one that
// it began with. It has expired when both the wall clock and the time of this process,
// which no step of the wall clock changes, say so.
func unexpired(leaf *x509.Certificate, wall, steady time.Time) error {
	if wall.After(leaf.NotAfter) && steady.After(leaf.NotAfter) {
		return fmt.Errorf("%w: the certificate of %s expired at %s; issue another and connect again",
			ErrCert, leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func fromSocket(c PeerCred, self int) (Identity, error) {
	if c.UID != self && c.UID != 0 {
		return Identity{}, fmt.Errorf("%w: user id %d is not the engine's", ErrPeer, c.UID)
	}
	return Identity{Role: RoleAdmin, Name: userName(c.UID), From: fmt.Sprintf("socket pid %d", c.PID)}, nil
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid" + id
}
