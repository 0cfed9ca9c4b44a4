package decision

import (
	"strings"
	"time"
)

// Bar asks about keeping a node or device from being used as a spare: words are its name, the
// time, with a ! behind it where no spare may be left, then the reason, which comes back.
func (o Operator) Bar(words []string) (q Question, reason string, why Refusal) {
	if why := o.LacksApprover("a bar"); why != "" {
		return nil, "", Refusal{Text: why}
	}
	if len(words) < 2 {
		return nil, "", Refusal{Text: "bar takes a node or device, a time such as 8h, and the reason"}
	}
	text, anyway := strings.CutSuffix(words[1], "!")
	long, err := time.ParseDuration(text)
	if err != nil || long <= 0 {
		return nil, "", Refusal{Text: "bar takes a time such as 30m or 8h after the name"}
	}
	return &Demand{
			Verb:   VerbBar,
			Node:   words[0],
			Long:   long,
			Anyway: anyway,
		},
		strings.Join(words[2:], " "),
		Refusal{}
}
