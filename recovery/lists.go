package recovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// listMost is how many names a sentence has.
const listMost = 6

func rankList(ranks []falcon.Rank) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	return listNames("rank", ranks)
}

func nodeList(nodes []falcon.Node) string {
	return listNames("node", nodes)
}

// listNames names the first of a list: "rank 1", "nodes n1, n2 and 3 more".
func listNames[T any](what string, list []T) string {
	names := make([]string, 0, listMost)
	for _, x := range list[:min(len(list), listMost)] {
		names = append(names, fmt.Sprint(x))
	}
	text := strings.Join(names, ", ")
	if len(list) > listMost {
		text += fmt.Sprintf(" and %d more", len(list)-listMost)
	}
	if len(list) != 1 {
		what += "s"
	}
	return what + " " + text
}

// withRanks is a list with others, ascending, each rank once.
func withRanks(list, others []falcon.Rank) []falcon.Rank {
	out := slices.Concat(list, others)
	slices.Sort(out)
	return slices.Compact(out)
}
