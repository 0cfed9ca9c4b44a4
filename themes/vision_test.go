package themes

import (
	"math"
	"testing"

	"github.com/charmbracelet/colorprofile"
)

// The matrices of Machado, Oliveira and Fernandes, "A Physiologically-based
// Model for Simulation of Color Vision Deficiency" (IEEE TVCG 2009), severity
// 1.0, on linear RGB.
var (
	deuteranopia = [9]float64{
		0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881,
	}
	tritanopia = [9]float64{
		1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367,
		0.303900,
	}
	normal = [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}
)

type lab struct{ l, a, b float64 }

// seen is a colour as somebody with that vision sees it, in CIE L*a*b* (D65).
func seen(c Color, m [9]float64) lab {
	ri, gi, bi, _ := c.Terminal().RGBA()
	r := linearLight(ri)
	g := linearLight(gi)
	b := linearLight(bi)
	clip := func(x float64) float64 { return math.Max(0, math.Min(1, x)) }
	r, g, b = clip(m[0]*r+m[1]*g+m[2]*b), clip(m[3]*r+m[4]*g+m[5]*b), clip(m[6]*r+m[7]*g+m[8]*b)
	x := 0.4124*r + 0.3576*g + 0.1805*b
	y := 0.2126*r + 0.7152*g + 0.0722*b
	z := 0.0193*r + 0.1192*g + 0.9505*b
	f := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	fx := f(x / 0.95047)
	fy := f(y)
	fz := f(z / 1.08883)
	return lab{116*fy - 16, 500 * (fx - fy), 200 * (fy - fz)}
}

// apart is the CIE 1976 difference; 2.3 is just noticeable side by side.
func apart(a, b Color, m [9]float64) float64 {
	x := seen(a, m)
	y := seen(b, m)
	return math.Sqrt((x.l-y.l)*(x.l-y.l) + (x.a-y.a)*(x.a-y.a) + (x.b-y.b)*(x.b-y.b))
}

// stepApart and rolesApart are the least differences: of two steps of a ramp,
// and of two severities in words, seen at a glance and not side by side.
const (
	stepApart  = 7
	rolesApart = 15
)

// Severity stays distinguishable for the vision that a theme is made for.
func TestSeverityIsSeenWithEachVision(t *testing.T) {
	visions := map[string][9]float64{
		"deuteranopia": deuteranopia,
		"tritanopia":   tritanopia,
		"dark":         normal,
		"light":        normal,
	}
	for name, m := range visions {
		for _, p := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			pal := load(t, name).Palette(p)
			for i := range Levels {
				for j := range i {
					if d := apart(pal.Heat[i], pal.Heat[j], m); d < stepApart {
						t.Errorf("%s %s: heat %d and %d are %.1f apart", name, p, j, i, d)
					}
				}
			}
			severities := []Role{Good, Warn, Bad}
			for i, a := range severities {
				for _, b := range severities[:i] {
					if d := apart(pal.Style(a).FG, pal.Style(b).FG, m); d < rolesApart {
						t.Errorf("%s %s: %s and %s are %.1f apart", name, p, b, a, d)
					}
				}
			}
			for _, b := range []Role{Culprit, Lost} {
				d := apart(pal.Style(Culprit).BG, pal.Style(Lost).BG, m)
				if d < rolesApart {
					t.Errorf("%s %s: culprit and %s are %.1f apart", name, p, b, d)
				}
			}
		}
	}
}

// Luminance runs one way for every vision, too: the order of the steps must
// not depend on hue.
func TestRampsStayOrderedWithEachVision(t *testing.T) {
	for _, n := range Names() {
		for _, m := range [][9]float64{normal, deuteranopia, tritanopia} {
			pal := load(t, n).Palette(colorprofile.TrueColor)
			up := seen(pal.Heat[Levels-1], m).l > seen(pal.Heat[0], m).l
			for i := 1; i < Levels; i++ {
				if d := seen(pal.Heat[i], m).l - seen(pal.Heat[i-1], m).l; (d > 0) != up {
					t.Errorf("%s: heat step %d goes against the ramp by %.1f", n, i, d)
				}
			}
		}
	}
}

// Text of any role may stand on a selected row, in the header or in a dialog.
func TestContrastOnOtherGrounds(t *testing.T) {
	for _, n := range Names() {
		for _, p := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			pal := load(t, n).Palette(p)
			for _, r := range Roles {
				for _, under := range []Role{Selected, Header, Dialog} {
					s := pal.On(pal.Style(r), pal.Style(under))
					if c := Contrast(s.FG, s.BG); c < leastContrast && r != Border {
						t.Errorf("%s %s %s on %s: contrast %.2f", n, p, r, under, c)
					}
				}
			}
		}
	}
}
