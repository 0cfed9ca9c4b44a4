package auth

import (
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
func Vouch(c net.Conn, id Identity) net.Conn {
	return vouchedConn{Conn: c, id: id}
}

type vouchedConn struct {
	net.Conn
	id Identity
}

// VouchedCredentials takes the identity from a connection that Vouch has made,
// and refuses every other.
func VouchedCredentials() credentials.TransportCredentials {
	return ServerOnly("vouched", func(c net.Conn) (credentials.AuthInfo, error) {
		v, ok := c.(vouchedConn)
		if !ok {
			return nil, fmt.Errorf("%w: no code of this process vouches for it", ErrPeer)
		}
		return Vouched{
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
			Identity:       v.id,
		}, nil
	})
}

// fromVouched checks the identity once more: it must be a person's.
func fromVouched(v Vouched) (Identity, error) {
	if v.Identity.Role.height() == 0 {
		return Identity{}, fmt.Errorf("%w: %q is no person's role", ErrPeer, v.Identity.Role)
	}
	return v.Identity, CheckName(v.Identity.Name)
}
