package engine

import (
	"maps"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
)

// deviceReadings are the newest readings of devices and ports, for consoles.
type deviceReadings struct {
	gpus map[falcon.Device]*falcon.GPUReading
	nics map[falcon.NIC]*port
	seen uint64 // devices and ports that were new

	sorted   []*port // all, by name
	sortedAt uint64  // of seen
}

// port is the newest look at a port, and what it shows against the one before.
type port struct {
	falcon.NICReading
	rate cnpRate
}

func newDeviceReadings() *deviceReadings {
	return &deviceReadings{
		gpus: map[falcon.Device]*falcon.GPUReading{},
		nics: map[falcon.NIC]*port{},
	}
}

// noteGPU takes in a look at a GPU. Its name is kept as it came first.
func (d *deviceReadings) noteGPU(r *falcon.GPUReading) {
	g := d.gpus[r.Device]
	if g == nil {
		g = &falcon.GPUReading{Device: r.Device}
		d.gpus[r.Device] = g
		d.seen++
	}
	name := g.Device
	*g = *r
	g.Device, r.Device = name, name
}

// notePort takes in a look at a port. The same look may come again and is no news.
func (d *deviceReadings) notePort(r *falcon.NICReading, now time.Time) {
	p := d.nics[r.NIC]
	if p == nil {
		d.nics[r.NIC] = &port{NICReading: *r}
		d.seen++
		return
	}
	if r.AtNs != p.AtNs {
		p.rate = cnpRate{cnpAfter(p.NICReading, *r), now}
	}
	r.NIC = p.NIC
	p.NICReading = *r
}

// cnpNow is the rate at a port, nil = none is known.
func (p *port) cnpNow(now time.Time) float64 {
	if p == nil || p.rate.seenAt.IsZero() || now.Sub(p.rate.seenAt) > cnpFresh {
		return cnpUnmeasured
	}
	return p.rate.perS
}

// nicViews lists the newest look at every port, by name.
func (d *deviceReadings) nicViews() []*falconv1.Nic {
	var out []*falconv1.Nic
	if d.sortedAt != d.seen {
		d.sortedAt = d.seen
		d.sorted = d.sorted[:0]
		for _, name := range sortedKeys(d.nics) {
			d.sorted = append(d.sorted, d.nics[name])
		}
	}
	for _, p := range d.sorted {
		out = append(out, convert.NICToProto(p.NICReading))
	}
	return out
}

// deviceRecord keeps a fatal report: what it is a sign of may come after the
// engine's next start, and the agent reports it once.
type deviceRecord struct {
	Node   falcon.Node   `json:"node"`
	Device falcon.Device `json:"device"`
	Code   int           `json:"code,omitempty"` // XID
	Text   string        `json:"text"`
}

func (m *journalState) setDevice(v deviceRecord, atNs int64) {
	maps.DeleteFunc(m.devices, func(_ falcon.Node, s recovery.Seen) bool {
		return atNs-s.AtNs > int64(recovery.EventLife)
	})
	m.devices[v.Node] = recovery.Seen{
		Device: recovery.Device{
			Device: v.Device,
			Fatal:  true,
			Code:   v.Code,
			Text:   v.Text,
		},
		AtNs: atNs,
	}
}
