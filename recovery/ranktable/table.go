package ranktable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/failslow/falcon"
)

// ErrTable is wrapped by every error about a placement that has no rank table.
var ErrTable = errors.New("ranktable: bad rank table")

// Limits of a table.
const (
	DevicesMost       = 1 << 17 // ranks
	ServerDevicesMost = 512
	NameMost          = 63 // bytes of a server's id (HCCL)
	HostMost          = 255
)

// server is one line of the table.
type server struct {
	ID      string   `json:"server_id"`
	HostIP  string   `json:"host_ip,omitempty"`
	Devices []device `json:"device"`
}

type device struct {
	ID   string `json:"device_id"`
	IP   string `json:"device_ip,omitempty"`
	Rank string `json:"rank_id"`
}

// Encode writes the table of a placement (device by rank), given the address of each
// node's host where it is known. A server's id is the node's name, its devices are
// reached at the host's address. Servers are in the order of their lowest rank, so
// that a spare takes the line of the node that it replaces, and devices in the order
// of their ranks. The same placement is always the same bytes. An error wraps ErrTable.
func Encode(p falcon.Placement, hosts map[falcon.Node]string) ([]byte, error) {
	servers, err := group(p, hosts)
	if err != nil {
		return nil, err
	}
	const serverBytes, deviceBytes = 128, 64 // usual
	b := bytes.NewBuffer(make([]byte, 0, 128+serverBytes*len(servers)+deviceBytes*len(p)))
	fmt.Fprintf(b, `{"status":"completed","version":"1.0","server_count":"%d","server_list":[`+"\n",
		len(servers))
	line := json.NewEncoder(b) // ends each server with a newline
	line.SetEscapeHTML(false)
	for i, s := range servers {
		if err := line.Encode(s); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTable, err)
		}
		if i < len(servers)-1 {
			b.Truncate(b.Len() - 1)
			b.WriteString(",\n")
		}
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// group gathers the devices of each node.
func group(p falcon.Placement, hosts map[falcon.Node]string) ([]*server, error) {
	if len(p) < 1 || len(p) > DevicesMost {
		return nil, fmt.Errorf("%w: %d devices; it holds 1 to %d", ErrTable, len(p), DevicesMost)
	}
	var out []*server
	at := map[falcon.Node]*server{}
	used := make(map[falcon.Device]bool, len(p))
	for r, d := range p {
		node := d.Node()
		index := d.Index()
		if index < 0 || node == "" || used[d] {
			return nil, fmt.Errorf("%w: rank %d is on %q, which is no device or has another rank",
				ErrTable, r, shorten(string(d)))
		}
		used[d] = true
		s := at[node]
		if s == nil {
			s = &server{ID: string(node), HostIP: hosts[node]}
			if err := s.check(); err != nil {
				return nil, err
			}
			at[node], out = s, append(out, s)
		}
		if len(s.Devices) == ServerDevicesMost {
			return nil, fmt.Errorf("%w: server %q has more than %d devices",
				ErrTable, shorten(s.ID), ServerDevicesMost)
		}
		s.Devices = append(s.Devices, device{
			ID:   strconv.Itoa(index),
			IP:   s.HostIP,
			Rank: strconv.Itoa(r),
		})
	}
	return out, nil
}

// check refuses names that HCCL does not take, and text that JSON would change: two
// names could become one.
func (s *server) check() error {
	switch {
	case len(s.ID) > NameMost:
		return fmt.Errorf("%w: server_id %q is longer than %d bytes", ErrTable, shorten(s.ID), NameMost)
	case len(s.HostIP) > HostMost:
		return fmt.Errorf("%w: host_ip of server %q is longer than %d bytes", ErrTable, s.ID, HostMost)
	case !utf8.ValidString(s.ID) || !utf8.ValidString(s.HostIP):
		return fmt.Errorf("%w: a name is not UTF-8", ErrTable)
	}
	return nil
}

// shorten cuts foreign text for a sentence.
func shorten(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
