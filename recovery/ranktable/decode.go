package ranktable

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/failslow/falcon"
)

// Read decodes a table of at most BytesMost from r.
func Read(r io.Reader) (Table, error) {
	b, err := io.ReadAll(io.LimitReader(r, BytesMost+1))
	if err != nil {
		return Table{}, fmt.Errorf("ranktable: can't read: %w", err)
	}
	return Decode(b)
}

// Decode reads a table of version 1.0 or 1.2, strictly: known fields only, each
// once. An error wraps ErrTable, ErrInitializing where the writer has not
// finished.
func Decode(b []byte) (Table, error) {
	if len(b) > BytesMost {
		return Table{}, fmt.Errorf("%w: over the limit of %d bytes", ErrTable, BytesMost)
	}
	if !utf8.Valid(b) {
		return Table{}, fmt.Errorf("%w: it is not UTF-8", ErrTable)
	}
	d := decoder{scan: scan{text: string(b)}, devices: make([]Device, 0, min(len(b)/deviceBytes, DevicesMost))}
	d.table()
	if d.err == nil && (d.next() != 0 || d.at < len(d.text)) {
		d.fail("more follows after the table")
	}
	switch {
	case d.err != nil:
		return Table{}, d.err
	case d.status == "initializing":
		return Table{}, ErrInitializing
	case d.status != "completed":
		return Table{}, fmt.Errorf("%w: status %q; only completed is one to use", ErrTable, cut(d.status))
	case d.count != len(d.out.Servers):
		return Table{}, fmt.Errorf("%w: server_count is %d, server_list has %d", ErrTable, d.count, len(d.out.Servers))
	}
	if err := d.out.Check(); err != nil {
		return Table{}, err
	}
	return d.out, nil
}

// deviceBytes is about what a device takes in the file.
const deviceBytes = 64

// entriesMost bounds servers, devices and members of pods together while
// nothing is known about them.
const entriesMost = 3 * DevicesMost

type decoder struct {
	scan
	out     Table
	status  string
	count   int
	entries int
	devices []Device // where those of all servers lie
}

// entry counts one more; false = the table is too large.
func (d *decoder) entry() bool {
	d.entries++
	if d.entries > entriesMost {
		d.fail("more than %d entries", entriesMost)
	}
	return d.err == nil
}

func (d *decoder) table() {
	d.object(func(key string) uint32 {
		switch key {
		case "status":
			d.status = d.str()
			return 1
		case "version":
			d.out.Version = d.str()
			return 2
		case "server_count":
			d.count = d.number()
			return 4
		case "server_list":
			d.array(d.server)
			return 8
		case "super_pod_list":
			d.array(d.pod)
			return 16
		}
		return 0
	})
}

func (d *decoder) server() {
	if !d.entry() {
		return
	}
	var s Server
	from := len(d.devices)
	d.object(func(key string) uint32 {
		switch key {
		case "server_id":
			s.ID = d.str()
			return 1
		case "host_ip":
			s.HostIP = d.str()
			return 2
		case "container_ip":
			s.ContainerIP = d.str()
			return 4
		case "hardware_type":
			s.HardwareType = d.str()
			return 8
		case "device":
			d.array(d.device)
			return 16
		}
		return 0
	})
	s.Devices = d.devices[from:len(d.devices):len(d.devices)]
	d.out.Servers = append(d.out.Servers, s)
}

func (d *decoder) device() {
	if !d.entry() {
		return
	}
	v := Device{Rank: -1}
	d.object(func(key string) uint32 {
		switch key {
		case "device_id":
			v.ID = d.str()
			return 1
		case "device_ip":
			v.IP = d.str()
			return 2
		case "rank_id":
			v.Rank = falcon.Rank(d.number())
			return 4
		case "super_device_id":
			v.SuperID = d.str()
			return 8
		case "device_port":
			v.Port = d.str()
			return 16
		case "backup_device_ip":
			v.BackupIP = d.str()
			return 32
		case "backup_device_port":
			v.BackupPort = d.str()
			return 64
		case "host_port":
			v.HostPort = d.str()
			return 128
		}
		return 0
	})
	d.devices = append(d.devices, v)
}

func (d *decoder) pod() {
	if !d.entry() {
		return
	}
	var p Pod
	d.object(func(key string) uint32 {
		switch key {
		case "super_pod_id":
			p.ID = d.str()
			return 1
		case "server_list":
			d.array(func() { p.Servers = append(p.Servers, d.podServer()) })
			return 2
		}
		return 0
	})
	d.out.Pods = append(d.out.Pods, p)
}

func (d *decoder) podServer() (id string) {
	if !d.entry() {
		return ""
	}
	d.object(func(key string) uint32 {
		if key != "server_id" {
			return 0
		}
		id = d.str()
		return 1
	})
	return id
}
