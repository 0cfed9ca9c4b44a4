package agent

import "testing"

// A file that names no node means the machine that it lies on, and the certificates that are called so.
func TestNodeIsTheHostname(t *testing.T) {
	c := Config{}
	c.fillNode(func() (string, error) { return "n7.cluster.example.org", nil })
	if c.Node != "n7" ||
		c.Cert != "/etc/falcon/n7.crt" ||
		c.Key != "/etc/falcon/n7.key" ||
		c.CA != "/etc/falcon/ca.crt" {
		t.Errorf("%+v", c)
	}
	c = Config{
		Node: "x",
		Cert: "/a",
		Key:  "/b",
		CA:   "/c",
	}
	c.fillNode(func() (string, error) { return "n7", nil })
	if c.Node != "x" || c.Cert != "/a" || c.Key != "/b" || c.CA != "/c" {
		t.Errorf("%+v", c)
	}
	if _, err := ParseConfig([]byte("engine: head:7440\n")); err != nil {
		t.Errorf("one line is not enough: %v", err)
	}
}
