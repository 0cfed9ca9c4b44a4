package engine

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// speedsStep is the relative change of a measured time that is worth a step of
// the planner: less is a window's noise.
const speedsStep = 0.02

// sameSpeeds reports whether a plan made with o holds for v too.
func (v speedsRecord) sameSpeeds(o speedsRecord) bool {
	return nearlyEqual(v.SelfMs, o.SelfMs) && nearlyEqual(v.Profile.SelfMs, o.Profile.SelfMs) && sameGroups(v.Profile.Groups, o.Profile.Groups) &&
		sameLinks(v.Profile.Links, o.Profile.Links)
}

func nearlyEqual(a, b []float64) bool { return slices.EqualFunc(a, b, near) }

func near(a, b float64) bool { return math.Abs(a-b) <= speedsStep*max(math.Abs(a), math.Abs(b)) }

func sameGroups(a, b []falcon.GroupTransfer) bool {
	return slices.EqualFunc(a, b, func(x, y falcon.GroupTransfer) bool {
		return x.Dimension == y.Dimension && x.Calls == y.Calls && x.Bytes == y.Bytes && near(x.TransferMs, y.TransferMs)
	})
}

func sameLinks(a, b []falcon.LinkSpeed) bool {
	return slices.EqualFunc(a, b, func(x, y falcon.LinkSpeed) bool { return x.Link == y.Link && near(x.Ratio, y.Ratio) })
}
