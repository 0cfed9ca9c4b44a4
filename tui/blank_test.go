package tui

import (
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/tui/key"
)

// blankRun is the longest run of rows that are blank from column x on, w columns wide.
func blankRun(rows []string, x, w int) int {
	longest, run := 0, 0
	for _, r := range rows {
		cells := []rune(r)
		part := string(cells[min(x, len(cells)):min(x+w, len(cells))])
		if strings.TrimSpace(part) == "" {
			run++
		} else {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// On a large screen no part of a page stands empty. What a chart leaves above its bars, what a
// map leaves between its marks and what events have not happened is not looked at.
func TestLargeScreensAreFilled(t *testing.T) {
	for _, c := range []struct {
		page        key.Scope
		strip, most int
		large       bool // of many ranks, too
	}{
		{key.Overview, 66, 14, false},
		{key.Ranks, 200, 14, false},
		{key.Grid, 200, 14, false},
		{key.Ladder, 200, 11, true},
		{key.Validate, 200, 11, true},
		{key.Recovery, 200, 11, true},
	} {
		for _, mo := range moments {
			if mo.name == "large" && !c.large {
				continue
			}
			if mo.name == "finished" && c.page == key.Recovery { // a job that has ended has nothing to lose
				continue
			}
			m := screen(t, mo, c.page, 200, 60, "dark", colorprofile.TrueColor, false)
			rows := strings.Split(strings.TrimRight(text(m), "\n"), "\n")
			for x := 0; x+c.strip <= 200; x += c.strip {
				if n := blankRun(rows, x, c.strip); n > c.most {
					t.Errorf("page %s, %s: %d rows from column %d on are empty", c.page, mo.name, n, x)
				}
			}
		}
	}
}
