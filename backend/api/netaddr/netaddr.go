// Package netaddr says which network a caller belongs to, for limits that both
// doors, the API's and that of SSH, count alike. It guarantees that two addresses of
// one customer's network count as one; it opens no connection and looks nothing up.
package netaddr

import (
	"net"
	"net/netip"
)

// Network is an IPv4 address (/32), or the 64 bits that one IPv6 customer has
// (/64). Addresses that are none, as of a unix socket, share the zero value.
func Network(a net.Addr) netip.Prefix {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		host = a.String()
	}
	ip, _ := netip.ParseAddr(host)
	ip = ip.WithZone("").Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
