package main

import (
	"sync"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// reportsMax is how many reports of devices wait for the stream, which comes a
// moment after the probes: more than the node has devices.
const reportsMax = 256

// mailbox keeps the devices' reports until there is a stream to send them on.
type mailbox struct {
	mu    sync.Mutex
	send  func(*falconv1.AgentFrame) // nil before
	early []*falconv1.AgentFrame
}

// putFrame sends a report, or keeps it.
func (m *mailbox) putFrame(f *falconv1.AgentFrame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.send != nil:
		m.send(f)
	case len(m.early) < reportsMax:
		m.early = append(m.early, f)
	}
}

// openMailbox sends what waits, and everything from now on at once.
func (m *mailbox) openMailbox(send func(*falconv1.AgentFrame)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send = send
	for _, f := range m.early {
		send(f)
	}
	m.early = nil
}
