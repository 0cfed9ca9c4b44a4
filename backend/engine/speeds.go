package engine

import (
	"math"

	"github.com/failslow/falcon"
)

// speedsStep is the relative change of a measured time that is worth telling
// the planner: less is a window's noise.
const speedsStep = 0.02

// sameSpeeds reports whether a plan made with o holds for v too.
func (v speedsRecord) sameSpeeds(o speedsRecord) bool {
	return nearlyEqual(v.SelfMs, o.SelfMs) && nearlyEqual(v.Profile.SelfMs, o.Profile.SelfMs) && sameGroups(v.Profile.Groups, o.Profile.Groups) &&
		sameLinks(v.Profile.Links, o.Profile.Links)
}

func nearlyEqual(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > speedsStep*max(math.Abs(a[i]), math.Abs(b[i])) {
			return false
		}
	}
	return true
}

func sameGroups(a, b []falcon.GroupTransfer) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Dimension != y.Dimension || x.Calls != y.Calls || x.Bytes != y.Bytes || !nearlyEqual([]float64{x.TransferMs}, []float64{y.TransferMs}) {
			return false
		}
	}
	return true
}

func sameLinks(a, b []falcon.LinkSpeed) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Link != b[i].Link || !nearlyEqual([]float64{a[i].Ratio}, []float64{b[i].Ratio}) {
			return false
		}
	}
	return true
}
