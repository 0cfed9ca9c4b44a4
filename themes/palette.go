package themes

import "github.com/charmbracelet/colorprofile"

// Palette is a theme resolved for one colour profile.
type Palette struct {
	Name       string
	Profile    colorprofile.Profile
	Background Color          // zero: the terminal's own
	Heat       [Levels]Color  // slowdown, 0 healthy; zero without colour
	Posterior  [Levels]Color  // log probability, 0 improbable; zero without colour
	roles      map[Role]Style // every role
}

// Style is how text of a role is drawn.
func (p *Palette) Style(r Role) Style { return p.roles[r] }

// HalfBlocks reports whether one cell can carry two levels by colour alone. With
// 16 colours or none a level needs a glyph of its own.
func (p *Palette) HalfBlocks() bool {
	return p.Profile >= colorprofile.ANSI256
}

// leastOn is the least contrast of text on a background of another role (WCAG 2, AA).
const leastOn = 4.5

// On is a style on the background of another, such as a selected row: its own
// colour where that is readable there, else the other's. With 16 colours
// terminals differ too much to judge, and the theme decides.
func (p *Palette) On(s, base Style) Style {
	if s.BG != 0 || base.BG == 0 {
		return s
	}
	s.BG = base.BG
	if p.Profile >= colorprofile.ANSI256 &&
		s.FG != 0 &&
		base.FG != 0 &&
		Contrast(s.FG, s.BG) < leastOn {
		s.FG = base.FG
	}
	return s
}

// Ink is the readable text style on a background colour of the palette:
// black or white, whichever contrasts more.
func (p *Palette) Ink(bg Color) Style {
	if bg == 0 {
		return p.Style(Text)
	}
	black := kindRGB
	white := kindRGB | 0xffffff
	switch p.Profile {
	case colorprofile.ANSI:
		black = kind16
		white = kind16 | 15
	case colorprofile.ANSI256:
		black = kind256 | 16
		white = kind256 | 231
	}
	if Contrast(black, bg) >= Contrast(white, bg) {
		return Style{FG: black, BG: bg}
	}
	return Style{FG: white, BG: bg}
}
