package key

import "slices"

var table = slices.Concat([]Binding{
	{Global, ShowOverview, []string{"1"}, "1", "overview", "Overview: what matters now.", 0},
	{Global, ShowRanks, []string{"2"}, "2", "ranks", "Ranks: heatmap of all ranks.", 0},
	{Global, ShowGrid, []string{"3"}, "3", "grid", "Grid: pipeline stages by data-parallel replicas.", 0},
	{Global, ShowPosterior, []string{"4"}, "4", "posterior", "Posterior: iteration time and run-length posterior of one rank.", 0},
	{Global, ShowLadder, []string{"5"}, "5", "ladder", "Ladder: mitigations, their price, their gain and the evidence.", 0},
	{Global, ShowEvents, []string{"8"}, "8", "events", "Events: what happened, newest last.", 0},
	{Global, NextPage, []string{"tab"}, "tab", "next", "Next page.", 0},
	{Global, PrevPage, []string{"shift+tab"}, "shift-tab", "previous", "Previous page.", 0},
	{Global, Back, []string{"esc"}, "esc", "back", "Go back: end a filter, or return to the last page.", 0},
	{Global, Approve, []string{"a"}, "a", "approve", "Approve the proposal: a dialog opens on Cancel; tab, then enter, approves.", 0},
	{Global, Veto, []string{"v"}, "v", "veto", "Veto the proposal, with a reason if you like.", 0},
	{Global, Why, []string{"i"}, "i", "why", "Why: the ladder and the evidence.", 0},
	{Global, Mode, []string{"c"}, "c", "mode", "Choose who may act: observe, approve, or automatic up to a rung.", 3},
	{Global, Freeze, []string{"F"}, "F", "freeze", "Freeze: stop new actions at once. When frozen: unfreeze, by typing the word.", 4},
	{Global, Follow, []string{"w"}, "w", "worst", "Follow the worst rank instead of the chosen one.", 0},
	{Global, Pause, []string{"p"}, "p", "pause", "Pause the display; header and proposal stay live.", 0},
	{Global, Theme, []string{"T"}, "T", "theme", "Next theme.", 0},
	{Global, Command, []string{":"}, ":", "command", "Command: a page's name, rank N, theme NAME, quit.", 2},
	{Global, ShowHelp, []string{"?"}, "?", "help", "Show the keys that work here.", 1},
	{Global, Quit, []string{"q", "ctrl+c"}, "q", "quit", "Leave the console.", 5},
}, mapKeys(Ranks), mapKeys(Grid), []Binding{
	{Posterior, Left, []string{"h", "left"}, "h ←", "older", "Move the hairline to an older iteration.", 10},
	{Posterior, Right, []string{"l", "right"}, "l →", "newer", "Move the hairline to a newer iteration.", 0},
	{Posterior, Up, []string{"k", "up"}, "k ↑", "rank", "Previous rank.", 0},
	{Posterior, Down, []string{"j", "down"}, "j ↓", "rank", "Next rank.", 11},
	{Posterior, Next, []string{"n"}, "n", "mark", "Next mark: onset, applied, reverted, relief.", 12},
	{Posterior, Prev, []string{"N"}, "N", "mark", "Previous mark.", 0},
	{Posterior, First, []string{"g", "home"}, "g", "oldest", "Oldest iteration on screen.", 0},
	{Posterior, Last, []string{"G", "end"}, "G", "newest", "Newest iteration: the hairline goes away.", 0},
	{Ladder, Up, []string{"k", "up"}, "k ↑", "rung", "Step up the list of rungs.", 0},
	{Ladder, Down, []string{"j", "down"}, "j ↓", "rung", "Step down the list of rungs.", 10},
	{Ladder, PageUp, []string{"ctrl+u", "pgup"}, "ctrl-u", "scroll", "Scroll evidence and actions back.", 0},
	{Ladder, PageDown, []string{"ctrl+d", "pgdown"}, "ctrl-d", "scroll", "Scroll evidence and actions on.", 11},
	{Events, Up, []string{"k", "up"}, "k ↑", "older", "Older events.", 10},
	{Events, Down, []string{"j", "down"}, "j ↓", "newer", "Newer events.", 0},
	{Events, PageUp, []string{"ctrl+u", "pgup"}, "ctrl-u", "page", "A page of older events.", 0},
	{Events, PageDown, []string{"ctrl+d", "pgdown"}, "ctrl-d", "page", "A page of newer events.", 0},
	{Events, First, []string{"g", "home"}, "g", "oldest", "Oldest event held.", 0},
	{Events, Last, []string{"G", "end"}, "G", "newest", "Newest event, and follow.", 11},
	{Events, Filter, []string{"/"}, "/", "filter", "Show only events that hold a text; esc shows all.", 12},
	{Dialog, Left, []string{"left", "shift+tab"}, "←", "other button", "Focus the previous button.", 0},
	{Dialog, Right, []string{"right", "tab"}, "tab", "other button", "Focus the next button.", 1},
	{Dialog, Up, []string{"up"}, "↑", "choice", "Previous choice.", 0},
	{Dialog, Down, []string{"down"}, "↓", "choose, scroll", "Next choice, or scroll.", 3},
	{Dialog, Confirm, []string{"enter"}, "enter", "press it", "Press the focused button.", 2},
	{Dialog, Erase, []string{"backspace", "ctrl+h"}, "backspace", "erase", "Erase a character where text is asked for.", 0},
	{Dialog, Cancel, []string{"esc", "ctrl+c"}, "esc", "cancel", "Close without doing anything.", 4},
	{Prompt, Confirm, []string{"enter"}, "enter", "run", "Run the command, or keep the filter.", 1},
	{Prompt, Erase, []string{"backspace", "ctrl+h"}, "backspace", "erase", "Erase a character.", 0},
	{Prompt, Cancel, []string{"esc", "ctrl+c"}, "esc", "cancel", "Leave the prompt.", 2},
	{Help, Up, []string{"k", "up"}, "k ↑", "scroll", "Scroll back.", 0},
	{Help, Down, []string{"j", "down"}, "j ↓", "scroll", "Scroll on.", 1},
	{Help, Cancel, []string{"esc", "?", "q", "enter", "ctrl+c"}, "esc", "close", "Close the help.", 2},
})

// mapKeys are the keys of the two maps, which move alike.
func mapKeys(s Scope) []Binding {
	b := []Binding{
		{s, Left, []string{"h", "left"}, "h ←", "move", "Cursor left.", 0},
		{s, Down, []string{"j", "down"}, "j ↓", "move", "Cursor down.", 0},
		{s, Up, []string{"k", "up"}, "k ↑", "move", "Cursor up.", 0},
		{s, Right, []string{"l", "right"}, "l →", "move", "Cursor right.", 0},
		{s, First, []string{"g", "home"}, "g", "first", "First rank.", 0},
		{s, Last, []string{"G", "end"}, "G", "last", "Last rank.", 0},
		{s, Next, []string{"n"}, "n", "anomaly", "Next rank that is not healthy.", 10},
		{s, Prev, []string{"N"}, "N", "anomaly", "Previous rank that is not healthy.", 0},
		{s, Metric, []string{"m"}, "m", "metric", "Switch between self time against peers and iteration time against its own baseline.", 12},
		{s, Open, []string{"enter"}, "enter", "posterior", "Open the posterior of the rank under the cursor.", 13},
	}
	if s == Ranks {
		b = append(b,
			Binding{s, ZoomIn, []string{"+", "="}, "+", "zoom", "Zoom in, to one cell with numbers a rank.", 11},
			Binding{s, ZoomOut, []string{"-", "_"}, "-", "zoom", "Zoom out: the worst of several ranks a pixel.", 0},
			Binding{s, PageUp, []string{"ctrl+u", "pgup"}, "ctrl-u", "page", "Half a page up.", 0},
			Binding{s, PageDown, []string{"ctrl+d", "pgdown"}, "ctrl-d", "page", "Half a page down.", 0},
		)
	}
	return b
}
