package ranktable

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/failslow/falcon"
)

// Address is how a node's devices are reached; every field may be unknown.
type Address struct {
	HostIP        string
	ContainerIP   string
	HardwareType  string
	DeviceIPs     []string // by device index; what is missing has the host's
	SuperPod      string   // version 1.2
	SuperDeviceID []string // version 1.2, by device index
}

// Build makes the table of a placement (device by rank). Servers stand in the
// order of their lowest rank, so that a spare stands where the node stood that
// it replaces, and devices in the order of their ranks. A server's id is the
// node's name. Version 1.2 where any node is in a super-pod, otherwise 1.0. An
// error wraps ErrTable.
func Build(p falcon.Placement, addresses map[falcon.Node]Address) (Table, error) {
	t := Table{Version: V10}
	at, used := map[falcon.Node]int{}, make(map[falcon.Device]bool, len(p))
	for r, name := range p {
		node := name.Node()
		if name.Index() < 0 || node == "" || used[name] {
			return Table{}, fmt.Errorf("%w: rank %d is on %q, which is no device or has another rank", ErrTable, r, cut(string(name)))
		}
		used[name] = true
		i, ok := at[node]
		if !ok {
			i = len(t.Servers)
			at[node], t.Servers = i, append(t.Servers, server(node, addresses[node]))
		}
		t.Servers[i].Devices = append(t.Servers[i].Devices, device(falcon.Rank(r), name.Index(), addresses[node]))
	}
	t.Pods = pods(t.Servers, addresses)
	if len(t.Pods) > 0 {
		t.Version = V12
	}
	for i := range t.Servers {
		if t.Version == V12 {
			break
		}
		for k := range t.Servers[i].Devices {
			t.Servers[i].Devices[k].SuperID = ""
		}
	}
	return t, t.Check()
}

func server(n falcon.Node, a Address) Server {
	return Server{ID: string(n), HostIP: a.HostIP, ContainerIP: a.ContainerIP, HardwareType: a.HardwareType}
}

func device(r falcon.Rank, index int, a Address) Device {
	return Device{ID: strconv.Itoa(index), IP: cmp.Or(at(a.DeviceIPs, index), a.HostIP), Rank: r, SuperID: at(a.SuperDeviceID, index)}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// pods lists the super-pods in the order of their first server.
func pods(servers []Server, addresses map[falcon.Node]Address) []Pod {
	var out []Pod
	for _, s := range servers {
		id := addresses[falcon.Node(s.ID)].SuperPod
		if id == "" {
			continue
		}
		i := slices.IndexFunc(out, func(p Pod) bool { return p.ID == id })
		if i < 0 {
			i = len(out)
			out = append(out, Pod{ID: id})
		}
		out[i].Servers = append(out[i].Servers, s.ID)
	}
	return out
}

// Placement is the device of every rank; it is Build's inverse for tables whose
// device ids are indexes. An error wraps ErrTable.
func (t Table) Placement() (falcon.Placement, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	out := make(falcon.Placement, t.World())
	for _, s := range t.Servers {
		for _, d := range s.Devices {
			i, err := strconv.Atoi(d.ID)
			if err != nil || i < 0 {
				return nil, fmt.Errorf("%w: device_id %q of server %q is no index", ErrTable, cut(d.ID), cut(s.ID))
			}
			out[d.Rank] = falcon.NewDevice(falcon.Node(s.ID), i)
		}
	}
	return out, nil
}
