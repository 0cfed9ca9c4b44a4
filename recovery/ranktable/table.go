package ranktable

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// ErrTable is wrapped by every error about a table or delta that can't be one.
var ErrTable = errors.New("ranktable: bad rank table")

// ErrInitializing says that the table's writer has not finished: read it again
// later. It wraps ErrTable.
var ErrInitializing = fmt.Errorf("%w: its status is initializing, not completed", ErrTable)

// Versions of the format.
const (
	V10 = "1.0"
	V12 = "1.2" // with super-pods
)

// Limits of a table.
const (
	BytesMost         = 32 << 20
	DevicesMost       = 1 << 17 // ranks
	ServerDevicesMost = 512
	NameMost          = 63 // bytes of a server's id (HCCL)
	TextMost          = 255
)

// Table is a complete rank table.
type Table struct {
	Version string
	Servers []Server // as they stand in the file
	Pods    []Pod    // version 1.2 only
}

// Server is one machine.
type Server struct {
	ID           string
	HostIP       string
	ContainerIP  string
	HardwareType string
	Devices      []Device
}

// Device is one accelerator and the rank that it runs.
type Device struct {
	ID   string // on its server
	IP   string
	Rank falcon.Rank
	// Version 1.2 only.
	SuperID, Port, BackupIP, BackupPort, HostPort string
}

// Pod is a super-pod of version 1.2: servers with a fabric of their own.
type Pod struct {
	ID      string
	Servers []string
}

// World is the number of ranks.
func (t Table) World() int {
	n := 0
	for _, s := range t.Servers {
		n += len(s.Devices)
	}
	return n
}

// Check says in one sentence why the table can't be used; it wraps ErrTable.
func (t Table) Check() error {
	if t.Version != V10 && t.Version != V12 {
		return fmt.Errorf("%w: version %q; it reads %s and %s", ErrTable, cut(t.Version), V10, V12)
	}
	world := t.World()
	if world < 1 || world > DevicesMost {
		return fmt.Errorf("%w: %d devices; it holds 1 to %d", ErrTable, world, DevicesMost)
	}
	ids := make(map[string]bool, len(t.Servers))
	ranks := make([]bool, world)
	for _, s := range t.Servers {
		if s.ID == "" || len(s.ID) > NameMost || ids[s.ID] {
			return fmt.Errorf("%w: server_id %q is empty, longer than %d bytes or there twice", ErrTable, cut(s.ID), NameMost)
		}
		ids[s.ID] = true
		if err := s.check(t.Version, ranks); err != nil {
			return err
		}
	}
	return t.checkPods(ids)
}

// check looks through one server and notes its ranks.
func (s Server) check(version string, ranks []bool) error {
	if len(s.Devices) < 1 || len(s.Devices) > ServerDevicesMost {
		return fmt.Errorf("%w: server %q has %d devices; it holds 1 to %d", ErrTable, cut(s.ID), len(s.Devices), ServerDevicesMost)
	}
	if max(len(s.HostIP), len(s.ContainerIP), len(s.HardwareType)) > TextMost {
		return fmt.Errorf("%w: an entry of server %q is longer than %d bytes", ErrTable, cut(s.ID), TextMost)
	}
	for i, d := range s.Devices {
		if d.ID == "" || twice(s.Devices[:i], d.ID) {
			return fmt.Errorf("%w: device_id %q of server %q is empty or there twice", ErrTable, cut(d.ID), cut(s.ID))
		}
		if d.Rank < 0 || int(d.Rank) >= len(ranks) || ranks[d.Rank] {
			return fmt.Errorf("%w: rank_id %d of server %q is there twice, or not one of %d", ErrTable, d.Rank, cut(s.ID), len(ranks))
		}
		ranks[d.Rank] = true
		if d.longest() > TextMost {
			return fmt.Errorf("%w: an entry of rank %d is longer than %d bytes", ErrTable, d.Rank, TextMost)
		}
		if version == V10 && d.super() {
			return fmt.Errorf("%w: rank %d has fields of version %s in a table of version %s", ErrTable, d.Rank, V12, V10)
		}
	}
	return nil
}

func (d Device) longest() int {
	return max(len(d.ID), len(d.IP), len(d.SuperID), len(d.Port), len(d.BackupIP), len(d.BackupPort), len(d.HostPort))
}

// super says that the device has what only version 1.2 knows.
func (d Device) super() bool {
	return d.SuperID != "" || d.Port != "" || d.BackupIP != "" || d.BackupPort != "" || d.HostPort != ""
}

func twice(devices []Device, id string) bool {
	for i := range devices {
		if devices[i].ID == id {
			return true
		}
	}
	return false
}

func (t Table) checkPods(servers map[string]bool) error {
	if t.Version == V10 && len(t.Pods) > 0 {
		return fmt.Errorf("%w: super_pod_list belongs to version %s", ErrTable, V12)
	}
	pods, in := map[string]bool{}, map[string]bool{}
	for _, p := range t.Pods {
		if p.ID == "" || len(p.ID) > NameMost || pods[p.ID] {
			return fmt.Errorf("%w: super_pod_id %q is empty, longer than %d bytes or there twice", ErrTable, cut(p.ID), NameMost)
		}
		pods[p.ID] = true
		for _, s := range p.Servers {
			if !servers[s] || in[s] {
				return fmt.Errorf("%w: super-pod %q has server %q, which is not in server_list or in two pods", ErrTable, cut(p.ID), cut(s))
			}
			in[s] = true
		}
	}
	return nil
}

// cut shortens foreign text for a sentence.
func cut(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
