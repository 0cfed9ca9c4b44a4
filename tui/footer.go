package tui

import (
	"slices"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/widget"
)

// alwaysShown are the actions that a footer keeps at any width.
var alwaysShown = []key.Action{key.ShowHelp, key.Freeze, key.Quit}

const (
	footerGap  = 2
	footerMore = "…" // where keys were left out
)

// footer is the keys of the last row as they fit: those of the page, a mark where some
// are left out, and those that are always there.
type footer struct {
	page, fixed []key.Binding
	cut         bool
}

// fitFooter leaves out what does not fit in w columns: of what is not fixed, the last first.
func fitFooter(list []key.Binding, w int) footer {
	f := footer{page: slices.Clone(list)}
	if footerWidth(f.page) <= w {
		return f
	}
	f.cut = true
	isFixed := func(b key.Binding) bool { return slices.Contains(alwaysShown, b.Action) }
	for _, b := range list {
		if isFixed(b) {
			f.fixed = append(f.fixed, b)
		}
	}
	f.page = slices.DeleteFunc(f.page, isFixed)
	for len(f.page) > 0 && f.width() > w {
		f.page = f.page[:len(f.page)-1]
	}
	return f
}

func (f *footer) width() int {
	n := widget.Width(footerMore) + footerGap + footerWidth(f.fixed)
	if len(f.page) > 0 {
		n += footerWidth(f.page) + footerGap
	}
	return n
}

// footerWidth is what keys take in a row.
func footerWidth(list []key.Binding) int {
	n := 0
	for _, b := range list {
		n += bindingWidth(b) + footerGap
	}
	return max(0, n-footerGap)
}

func bindingWidth(b key.Binding) int {
	return widget.Width(b.Help().Key) + 1 + widget.Width(b.Help().Desc)
}

// draw returns the footer from column x of row y on in w columns, and where it can be tapped.
func (f *footer) draw(skin *skin, x, y, w int) (string, []zone) {
	text := skin.shortHelp(w, f.page)
	zones := footerZones(f.page, x, y, w)
	if !f.cut {
		return text, zones
	}
	if len(f.page) > 0 {
		text += "  "
		x += footerWidth(f.page) + footerGap
	}
	x += widget.Width(footerMore) + footerGap
	text += skin.styled(themes.Dim, footerMore) + "  " + skin.shortHelp(w, f.fixed)
	return text, append(zones, footerZones(f.fixed, x, y, w)...)
}
