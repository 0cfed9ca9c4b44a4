package auth

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// Vouched is what the engine's own process has proven about a caller by other
// means, such as an SSH key.
type Vouched struct {
	credentials.CommonAuthInfo
	Identity Identity
}

// AuthType names the method for gRPC.
func (Vouched) AuthType() string { return "vouched" }

// Vouch binds one end of a pipe inside this process to an identity. Only code
// of this process can make such a connection; nothing that arrives from
// outside becomes one.
func Vouch(c net.Conn, id Identity) net.Conn { return vouchedConn{Conn: c, id: id} }

type vouchedConn struct {
	net.Conn
	id Identity
}

// VouchedCredentials takes the identity from a connection that Vouch has made,
// and refuses every other.
func VouchedCredentials() credentials.TransportCredentials { return vouchedCredentials{} }

type vouchedCredentials struct{ socketCredentials }

func (vouchedCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	v, ok := c.(vouchedConn)
	if !ok {
		return nil, nil, fmt.Errorf("%w: nobody vouches for it", ErrPeer)
	}
	return c, Vouched{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		Identity:       v.id,
	}, nil
}

func (vouchedCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("%w: these credentials are for servers", ErrPeer)
}

func (vouchedCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "vouched"}
}
func (v vouchedCredentials) Clone() credentials.TransportCredentials { return v }

// fromVouched checks the identity once more: it must be a person's.
func fromVouched(v Vouched) (Identity, error) {
	if v.Identity.Role.height() == 0 {
		return Identity{}, fmt.Errorf("%w: %q is no person's role", ErrPeer, v.Identity.Role)
	}
	return v.Identity, CheckName(v.Identity.Name)
}
