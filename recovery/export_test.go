package recovery

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// Current returns the recovery in progress, false where there is none.
func (m *Machine) Current() (falcon.Recovery, bool) {
	if m.op.rec == nil {
		return falcon.Recovery{}, false
	}
	return cloneRecovery(m.op.rec), true
}

// Recovery finds one by its id.
func (m *Machine) Recovery(id string) (falcon.Recovery, bool) {
	if c := m.hist.findByID(id); c != nil {
		return cloneRecovery(c), true
	}
	return falcon.Recovery{}, false
}

// Exposure lists, for every node and failure domain of the present job, the
// shards that would have no replica if it were lost now, worst first.
func (m *Machine) Exposure(more ...replica.Domain) ([]replica.Exposure, error) {
	return replica.Map(replica.Query{
		Layout:    m.job.Layout,
		ZeRO:      m.job.ZeRO,
		Placement: m.job.Placement,
		Domains:   m.job.Domains,
	}, more...)
}
