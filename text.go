package falcon

import (
	"fmt"
	"strconv"
	"strings"
)

// NodesText names nodes in a line for operators, the first eight of many.
func NodesText(nodes []Node) string {
	const most = 8
	names := make([]string, 0, most)
	for _, n := range nodes[:min(len(nodes), most)] {
		names = append(names, string(n))
	}
	text := strings.Join(names, ", ")
	if len(nodes) > most {
		text += fmt.Sprintf(" and %d more", len(nodes)-most)
	}
	return text
}

// RankSubject names a rank as what an event line is about.
func RankSubject(r Rank) string { return rankPrefix + strconv.Itoa(int(r)) }

// SubjectRank is the rank that RankSubject has named.
func SubjectRank(about string) (Rank, bool) {
	number, is := strings.CutPrefix(about, rankPrefix)
	r, err := strconv.ParseUint(number, 10, 31)
	return Rank(r), is && err == nil
}

const rankPrefix = "rank "
