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
	return slices.EqualFunc(v.SelfMs, o.SelfMs, near) &&
		slices.EqualFunc(v.Profile.SelfMs, o.Profile.SelfMs, near) &&
		slices.EqualFunc(v.Profile.Groups, o.Profile.Groups, func(x, y falcon.GroupTransfer) bool {
			return x.Dimension == y.Dimension &&
				x.Calls == y.Calls &&
				x.Bytes == y.Bytes &&
				near(x.TransferMs, y.TransferMs)
		}) &&
		slices.EqualFunc(v.Profile.Links, o.Profile.Links, func(x, y falcon.LinkSpeed) bool {
			return x.Link == y.Link && near(x.Ratio, y.Ratio)
		})
}

func near(a, b float64) bool {
	return math.Abs(a-b) <= speedsStep*max(math.Abs(a), math.Abs(b))
}
