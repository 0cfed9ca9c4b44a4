package nic

import (
	"path/filepath"
	"strings"

	"github.com/failslow/falcon"
)

const (
	gpuVendor  = "0x10de"
	devicesMax = 4096 // looked at on the PCI bus
)

// gpuClasses are the PCI classes of GPUs: 3D controller, VGA controller.
var gpuClasses = []string{"0x0302", "0x0300"}

// pciPlace is where a device hangs on the PCI tree.
type pciPlace struct {
	path []string // bridges from the root complex on
	numa string   // NUMA node, "" or "-1" = unknown
}

// nearestPorts finds each GPU's port: the one that shares most of the way to the
// root complex, else the NUMA node. GPU i is the i-th by PCI address, the order
// of NVML. A GPU with several ports equally near has none here: which of them
// NCCL takes can't be read from sysfs.
func nearestPorts(root string, ports []*port) map[int]falcon.NIC {
	at := make([]pciPlace, len(ports))
	for i, p := range ports {
		at[i] = devicePath(p.deviceDir(root))
	}
	out := map[int]falcon.NIC{}
	for g, gpu := range listGPUs(root) {
		best, how, tie := 0, 0, true
		for i := range ports {
			switch score := gpu.proximity(at[i]); {
			case score > how:
				best = i
				how = score
				tie = false
			case score == how:
				tie = true
			}
		}
		if how > 0 && !tie {
			out[g] = ports[best].name
		}
	}
	return out
}

func listGPUs(root string) []pciPlace {
	var out []pciPlace
	for _, address := range GPUAddresses(root) {
		out = append(out, devicePath(filepath.Join(root, "bus", "pci", "devices", address)))
	}
	return out
}

// GPUAddresses are the GPUs' addresses on the PCI bus, such as 0000:3b:00.0, in their order, which
// is that of NVML.
func GPUAddresses(root string) []string {
	bus := filepath.Join(root, "bus", "pci", "devices")
	var out []string
	for i, address := range listDirectory(bus) {
		if i >= devicesMax {
			break
		}
		dir := filepath.Join(bus, address)
		if vendor, _ := readAttribute(filepath.Join(dir, "vendor")); vendor != gpuVendor {
			continue
		}
		class, _ := readAttribute(filepath.Join(dir, "class"))
		for _, c := range gpuClasses {
			if strings.HasPrefix(class, c) {
				out = append(out, address)
			}
		}
	}
	return out
}

// devicePath follows a link to the device it means.
func devicePath(link string) pciPlace {
	real, err := filepath.EvalSymlinks(link)
	if err != nil {
		return pciPlace{}
	}
	numa, _ := readAttribute(filepath.Join(real, "numa_node"))
	parts := strings.Split(real, string(filepath.Separator))
	for i, p := range parts {
		if strings.HasPrefix(p, "pci") {
			return pciPlace{path: parts[i:], numa: numa}
		}
	}
	return pciPlace{numa: numa}
}

// proximity grows with every shared step of the way; a shared NUMA node counts less
// than any.
func (a pciPlace) proximity(b pciPlace) int {
	steps := 0
	for steps < len(a.path) &&
		steps < len(b.path) &&
		a.path[steps] == b.path[steps] {
		steps++
	}
	score := 2 * steps
	if a.numa == b.numa && a.numa != "" && a.numa != "-1" {
		score++
	}
	return score
}
