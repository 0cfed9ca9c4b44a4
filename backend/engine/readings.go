package engine

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// deviceReadings are the newest readings of devices and ports, for consoles.
type deviceReadings struct {
	job  *job
	gpus map[falcon.Device]falcon.GPUReading
	nics map[falcon.NIC]falcon.NICReading
	cnps map[falcon.NIC]cnpRate
}

func newDeviceReadings(j *job) *deviceReadings {
	return &deviceReadings{
		job: j, gpus: map[falcon.Device]falcon.GPUReading{},
		nics: map[falcon.NIC]falcon.NICReading{}, cnps: map[falcon.NIC]cnpRate{},
	}
}

// notePort takes in a look at a port. The same look may come again and is no news.
func (d *deviceReadings) notePort(r falcon.NICReading, now time.Time) {
	old, known := d.nics[r.NIC]
	d.nics[r.NIC] = r
	if known && r.AtNs != old.AtNs {
		d.cnps[r.NIC] = cnpRate{cnpAfter(old, r), now}
	}
}

// cnpRate is the rate at the port that a rank's traffic leaves by.
func (d *deviceReadings) cnpRate(r falcon.Rank, now time.Time) float64 {
	p := d.job.ranks[r]
	if p == nil {
		return cnpUnmeasured
	}
	rate, known := d.cnps[falcon.NIC(p.state.GetNic())]
	if !known || now.Sub(rate.seenAt) > cnpFresh {
		return cnpUnmeasured
	}
	return rate.perS
}

// nicViews lists the newest look at every port, by name.
func (d *deviceReadings) nicViews() []*falconv1.Nic {
	var out []*falconv1.Nic
	for _, name := range sortedKeys(d.nics) {
		out = append(out, convert.NICToProto(d.nics[name]))
	}
	return out
}
