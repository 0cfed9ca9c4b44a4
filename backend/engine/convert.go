package engine

import (
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What other machines send is cleaned here: strings of control characters before
// they can reach a terminal or the journal, numbers of what can't be.

// textBytesMax bounds any text that another machine sends.
const textBytesMax = 512

// clean strips control characters and bounds the length.
func clean(s string) string { return cleanWithin(s, textBytesMax) }

func cleanWithin(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// Bounds of numbers from other machines: beyond them one is a fault of the
// sender, and would spoil every sum that it enters.
const (
	msMost        = 1e9     // 11 days
	countMost     = 1 << 20 // micro-batches, iterations of a window
	iterationMost = 1 << 40
	gpusMax       = 64  // per node
	nicsMax       = 64  // per node
	commsMost     = 256 // FALCON_COMMS_MAX: communicators of one process
)

// finite is v where it is a number within [0, most], else 0.
func finite(v, most float64) float64 {
	if v >= 0 && v <= most {
		return v
	}
	return 0 // also for NaN
}

// plausibleProfile refuses what no profile can hold.
func plausibleProfile(p *falconv1.RankProfile) bool {
	counts := p.GetIterations() >= 0 &&
		p.GetIterations() <= countMost &&
		p.GetMicroBatches() >= 0 &&
		p.GetMicroBatches() <= countMost
	return counts &&
		convert.ValidColumns(p.GetColumns()) &&
		p.GetSelfMs() >= 0 &&
		p.GetSelfMs() < msMost
}

// profileFrom is a profile that plausibleProfile took.
func profileFrom(window uint64, p *falconv1.RankProfile) falcon.RankProfile {
	out := convert.ProfileFromProto(window, p)
	out.QueueMs = finite(out.QueueMs, msMost)
	for i := range out.Calls {
		c := &out.Calls[i]
		c.Bytes, c.StartMs = max(c.Bytes, 0), finite(c.StartMs, msMost)
		c.DurationMs, c.QueueMs = finite(c.DurationMs, msMost), finite(c.QueueMs, msMost)
	}
	return out
}

func gpuFrom(node falcon.Node, g *falconv1.Gpu) falcon.GPUReading {
	out := convert.GPUFromProto(g)
	out.Device = deviceOn(node, g.GetDevice())
	out.Err = clean(out.Err)
	out.Model = clean(out.Model)
	return out
}

func hostFrom(node falcon.Node, h *falconv1.Host) falcon.HostReading {
	out := convert.HostFromProto(node, h)
	out.LoadPerCPU = finite(out.LoadPerCPU, 1e6)
	out.StealShare = min(finite(out.StealShare, msMost), 1)
	out.Err = clean(out.Err)
	return out
}

func nicFrom(node falcon.Node, x *falconv1.Nic) (falcon.NICReading, bool) {
	out := convert.NICFromProto(x)
	ok := false
	out.NIC, ok = nicOn(node, x.GetName())
	out.Err = clean(out.Err)
	return out, ok
}

// deviceOn ties a device's name to the node that its agent's certificate
// proves: an agent can't report another node's hardware.
func deviceOn(node falcon.Node, name string) falcon.Device {
	d, err := falcon.ParseDevice(clean(name))
	if err != nil || d.Node() != node {
		return falcon.NewDevice(node, max(falcon.Device(clean(name)).Index(), 0))
	}
	return d
}

// nicOn ties a port's name to the node that its agent's certificate proves.
func nicOn(node falcon.Node, name string) (falcon.NIC, bool) {
	index, ok := strings.CutPrefix(name, string(node)+".nic")
	if n, err := strconv.Atoi(index); !ok || err != nil || n < 0 || n >= nicsMax {
		return "", false
	}
	return falcon.NIC(name), true
}
