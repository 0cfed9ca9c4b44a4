package netaddr

import (
	"net"
	"net/netip"
	"testing"
)

type addr string

func (addr) Network() string  { return "test" }
func (a addr) String() string { return string(a) }

func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:9000":               "192.0.2.7/32",
		"192.0.2.7":                    "192.0.2.7/32",
		"[::ffff:192.0.2.7]:9000":      "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:22":    "2001:db8:1:2::/64",
		"[2001:db8:1:2:a:b:c:d%e0]:22": "2001:db8:1:2::/64",
	} {
		if got := Network(addr(in)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for _, in := range []net.Addr{addr(""), addr("@"), &net.UnixAddr{Name: "/run/falcon.sock"}} {
		if got := Network(in); got != (netip.Prefix{}) {
			t.Errorf("%q: %s", in, got)
		}
	}
}
