package falcon

import (
	"fmt"
	"math"
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
func RankSubject(r Rank) string {
	return rankPrefix + strconv.Itoa(int(r))
}

// SubjectRank is the rank that RankSubject has named.
func SubjectRank(about string) (Rank, bool) {
	number, is := strings.CutPrefix(about, rankPrefix)
	r, err := strconv.ParseUint(number, 10, 31)
	return Rank(r), is && err == nil
}

const rankPrefix = "rank "

// durationUnits are in ascending order, each with the milliseconds that it
// stands for and those from which on it is used.
var durationUnits = []struct {
	ms, least float64
	name      string
}{
	{1e-6, 0, "ns"},
	{1e-3, 1e-3, "µs"},
	{1, 1, "ms"},
	{1e3, 1e3, "s"},
	{60e3, 600e3, "min"},
	{3600e3, 7200e3, "h"},
}

// DurationText writes a duration with four digits in a fitting unit: 105.3 s
// for 105,270 ms.
func DurationText(ms float64) string {
	if ms == 0 || math.IsNaN(ms) || math.IsInf(ms, 0) {
		return fmt.Sprintf("%g ms", ms)
	}
	ms = fourDigits(ms) // 999.96 ms are 1 s
	unit := durationUnits[0]
	for _, u := range durationUnits {
		if math.Abs(ms) >= u.least {
			unit = u
		}
	}
	return strconv.FormatFloat(fourDigits(ms/unit.ms), 'f', -1, 64) + " " + unit.name
}

func fourDigits(x float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	return rounded
}
