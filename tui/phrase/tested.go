package phrase

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// TestedIn is what a validation says of a device: "tested by VAL-0002: 1.84 x the median, slow",
// "" where it did not test it.
func TestedIn(v *falconv1.Validation, device string) string {
	for _, g := range v.GetGemm() {
		if g.GetDevice() != device {
			continue
		}
		verdict := "as fast as the others"
		if g.GetSlow() {
			verdict = "slow"
		}
		return fmt.Sprintf("tested by %s: %.2f x the median, %s", v.GetId(), g.GetRatio(), verdict)
	}
	return ""
}
