package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/kernel"
	"github.com/failslow/falcon/agent/nic"
	"github.com/failslow/falcon/agent/peek"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// kernelShown is how many findings a person is shown who names no number.
const kernelShown = 20

// kernelReader reads what the kernel has said of GPUs, memory, bus and network.
func (q *questions) kernelReader(lines int) (peekRead, string) {
	if q.logs.Kernel == "" {
		return nil, "this node's agent does not read the kernel's messages: logs.kernel is empty in its configuration"
	}
	ranks := q.said.Ranks()
	return func() ([]*falconv1.PeekPart, string) {
		part, err := kernelPart(
			q.logs.Kernel,
			max(lines, 0),
			pciNames{q.node, nic.GPUAddresses(q.sysfs)},
			ranks,
		)
		if err != nil {
			return nil, err.Error()
		}
		return []*falconv1.PeekPart{part}, ""
	}, ""
}

// kernelPart is the newest findings of a source, each with its meaning and its line.
func kernelPart(path string, most int, names pciNames, ranks map[int]int) (*falconv1.PeekPart, error) {
	log, err := kernel.Open(path, false)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if most == 0 {
		most = kernelShown
	}
	var found []kernel.Finding
	messages := 0
	lost, err := log.Read(func(r kernel.Record) {
		messages++
		if f, ok := kernel.Classify(r); ok {
			if found = append(found, f); len(found) > 2*peek.LinesMost {
				found = slices.Clone(found[len(found)-peek.LinesMost:])
			}
		}
	})
	if err != nil {
		return nil, err
	}
	part := &falconv1.PeekPart{Source: "kernel", Path: path}
	booted := kernel.Booted(time.Now())
	for _, f := range found[max(0, len(found)-most):] {
		head := fmt.Sprintf("%s  %s",
			booted.Add(f.Since).UTC().Format("2006-01-02 15:04:05Z"), names.describe(f, ranks))
		part.Lines = append(part.Lines, peek.Clean(head), peek.Clean("    "+f.Line))
	}
	switch {
	case len(found) == 0:
		part.Note = fmt.Sprintf("nothing of GPUs, memory, bus, network or storage in %d messages", messages)
	case lost:
		part.Note = "older messages were overwritten while they were read"
	}
	return part, nil
}

// pciNames are the names of a node's GPUs by their addresses on the bus.
type pciNames struct {
	node falcon.Node
	gpus []string // addresses, in the GPUs' order
}

// device is the GPU at an address; "" where it is not known.
func (n pciNames) device(pci string) falcon.Device {
	if pci == "" {
		return ""
	}
	if domain, rest, ok := strings.Cut(pci, ":"); ok && len(domain) == 8 { // as some drivers write it
		pci = domain[4:] + ":" + rest
	}
	for i, address := range n.gpus {
		if strings.HasPrefix(strings.ToLower(address), pci) {
			return falcon.NewDevice(n.node, i)
		}
	}
	return ""
}

// describe is what a finding means, of which part and rank, and what to do.
func (n pciNames) describe(f kernel.Finding, ranks map[int]int) string {
	text := f.Text
	var of []string
	if d := n.device(f.PCI); d != "" {
		of = append(of, string(d))
	}
	if rank, known := ranks[f.PID]; known && f.PID > 0 {
		of = append(of, fmt.Sprintf("rank %d", rank))
	}
	if len(of) > 0 {
		text += " (" + strings.Join(of, ", ") + ")"
	}
	return text + ". " + f.Advice
}
