// Package ranktabletest reads rank tables and applies their deltas in the place of the
// frameworks and agents that do so in a cluster, for tests and simulated nodes.
//
// It guarantees: Decode accepts only whole tables (every rank once, only known fields,
// status "completed"); Apply returns the bytes that the delta describes, or an error.
// It is no part of the product: nothing but tests and simulations may import it.
package ranktabletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/ranktable"
)

// ErrRead is wrapped by every error of this package.
var ErrRead = errors.New("ranktabletest: refused")

type table struct {
	Status  string   `json:"status"`
	Version string   `json:"version"`
	Count   string   `json:"server_count"`
	Servers []server `json:"server_list"`
}

type server struct {
	ID      string   `json:"server_id"`
	HostIP  string   `json:"host_ip"`
	Devices []device `json:"device"`
}

type device struct {
	ID   string `json:"device_id"`
	IP   string `json:"device_ip"`
	Rank string `json:"rank_id"`
}

// Decode returns the device of every rank, and the hosts' addresses.
func Decode(b []byte) (falcon.Placement, map[falcon.Node]string, error) {
	var t table
	if err := strictly(b, &t); err != nil {
		return nil, nil, err
	}
	if t.Status != "completed" ||
		t.Version != "1.0" ||
		t.Count != strconv.Itoa(len(t.Servers)) {
		return nil, nil, fmt.Errorf("%w: status %q, version %q, %s servers announced, %d there",
			ErrRead, t.Status, t.Version, t.Count, len(t.Servers))
	}
	world := 0
	hosts := map[falcon.Node]string{}
	for _, s := range t.Servers {
		if _, twice := hosts[falcon.Node(s.ID)]; twice {
			return nil, nil, fmt.Errorf("%w: server %q is there twice", ErrRead, s.ID)
		}
		hosts[falcon.Node(s.ID)] = s.HostIP
		world += len(s.Devices)
	}
	p := make(falcon.Placement, world)
	for _, s := range t.Servers {
		for _, d := range s.Devices {
			rank, err := strconv.Atoi(d.Rank)
			index, e := strconv.Atoi(d.ID)
			if err != nil ||
				e != nil ||
				rank < 0 ||
				rank >= world ||
				p[rank] != "" ||
				d.IP != s.HostIP {
				return nil, nil, fmt.Errorf("%w: rank %q on device %q of %q at %q",
					ErrRead, d.Rank, d.ID, s.ID, d.IP)
			}
			p[rank] = falcon.NewDevice(falcon.Node(s.ID), index)
		}
	}
	return p, hosts, nil
}

// Apply makes the new table from the base and an encoded delta.
func Apply(base, encoded []byte) ([]byte, error) {
	var d ranktable.Delta
	if err := strictly(encoded, &d); err != nil {
		return nil, err
	}
	if ranktable.Describe(base, d.Base.Generation) != d.Base {
		return nil, fmt.Errorf("%w: the delta is for another table", ErrRead)
	}
	out := make([]byte, 0, d.Result.Bytes)
	at := 0
	for _, e := range d.Edits {
		if e.At < at || e.Cut < 0 || e.Cut > len(base)-e.At {
			return nil, fmt.Errorf("%w: the edit at byte %d overlaps another or lies outside", ErrRead, e.At)
		}
		out = append(append(out, base[at:e.At]...), e.Put...)
		at = e.At + e.Cut
	}
	out = append(out, base[at:]...)
	if ranktable.Describe(out, d.Result.Generation) != d.Result {
		return nil, fmt.Errorf("%w: the result is not the table that the delta describes", ErrRead)
	}
	return out, nil
}

// strictly decodes one JSON value of known fields.
func strictly(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrRead, err)
	}
	if dec.More() {
		return fmt.Errorf("%w: more follows", ErrRead)
	}
	return nil
}
