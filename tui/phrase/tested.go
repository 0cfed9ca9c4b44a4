package phrase

import (
	"cmp"
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// TestedIn is what a validation says of a device or a link between two nodes: "tested by
// VAL-0002: 1.84 x the median, slow", "" where it did not test it. Of a link the worst
// direction is reported; what could not be judged is never called fast.
func TestedIn(v *falconv1.Validation, name string) string {
	for _, g := range v.GetGemm() {
		if g.GetDevice() == name {
			return testedText(
				v,
				fmt.Sprintf("%.2f x the median", g.GetRatio()),
				g.GetSlow(),
				"as fast as the others",
			)
		}
	}
	var worst *falconv1.LinkResult
	for _, l := range v.GetLinks() {
		if l.GetLink() == name && (worst == nil || WorseFirst(l, worst) < 0) {
			worst = l
		}
	}
	switch {
	case worst == nil:
		return ""
	case worst.GetErr() != "":
		return fmt.Sprintf("tested by %s, which failed: %s", v.GetId(), worst.Err)
	case worst.GetUnjudged() != "":
		return fmt.Sprintf("tested by %s, not judged: %s", v.GetId(), worst.Unjudged)
	}
	return testedText(
		v,
		fmt.Sprintf("%.2f x the usual", worst.GetRatio()),
		worst.GetSlow(),
		"as fast as usual",
	)
}

func testedText(v *falconv1.Validation, ratio string, slow bool, fast string) string {
	if slow {
		return fmt.Sprintf("tested by %s: %s, slow", v.GetId(), ratio)
	}
	return fmt.Sprintf("tested by %s: %s, %s", v.GetId(), ratio, fast)
}

// WorseFirst compares results of links: slow ones first, then failed, not judged and fast
// ones; among equals by ratio and time.
func WorseFirst(a, b *falconv1.LinkResult) int {
	return cmp.Or(
		-cmp.Compare(gravityOf(a), gravityOf(b)),
		-cmp.Compare(a.GetRatio(), b.GetRatio()),
		-cmp.Compare(a.GetMs(), b.GetMs()),
	)
}

func gravityOf(l *falconv1.LinkResult) int {
	switch {
	case l.GetSlow():
		return 3
	case l.GetErr() != "":
		return 2
	case l.GetUnjudged() != "":
		return 1
	}
	return 0
}
