package evaltest

import "math/rand/v2"

// Shape is one way of getting slower, tried many times on plain noise. Its
// level is 1 before From.
type Shape struct {
	Name  string
	N     int // iterations
	From  int // first iteration that is slower
	Cross int // first iteration that is 10 % or more slower, N where it never is
	Level func(i int) float64
}

// Trial is what the methods made of a shape.
type Trial struct {
	Shape  Shape
	CoV    float64
	Jobs   int
	Found  [methods]int   // jobs with a report that means the change
	Delays [methods][]int // of those, from Cross, or From where it is not crossed
}

const shapeFrom = 200 // iterations before a shape's change

// Steps are single steps of the given excesses.
func Steps(depths ...float64) []Shape {
	var out []Shape
	for _, d := range depths {
		out = append(out, shape(percent(d), 2*shapeFrom, func(i int) float64 { return 1 + d }))
	}
	return out
}

// Ladders are the changes that have no step of 10 %: the paper's miss, and
// drifts. The last does not sum to 10 % and must be let pass.
func Ladders() []Shape {
	return []Shape{
		ladder("2 steps of 7 %, 100 apart", 0.07, 2, 100),
		ladder("3 steps of 5 %, 60 apart", 0.05, 3, 60),
		ladder("4 steps of 4 %, 150 apart", 0.04, 4, 150),
		ladder("2 steps of 9 %, 20 apart", 0.09, 2, 20),
		ramp("a ramp to 15 % over 200", 0.15, 200),
		ramp("a ramp to 15 % over 1,000", 0.15, 1000),
		ramp("a ramp to 30 % over 1,000", 0.30, 1000),
		ramp("a ramp to 6 % over 500, none", 0.06, 500),
	}
}

func ladder(name string, rise float64, steps, apart int) Shape {
	return shape(name, shapeFrom+steps*apart+400, func(i int) float64 {
		level := 1.0
		for k := range steps {
			if i >= k*apart {
				level *= 1 + rise
			}
		}
		return level
	})
}

func ramp(name string, to float64, over int) Shape {
	return shape(name, shapeFrom+over+400, func(i int) float64 {
		return 1 + to*min(1, float64(i+1)/float64(over))
	})
}

// shape is n iterations whose level is one of the iterations since shapeFrom.
func shape(name string, n int, level func(since int) float64) Shape {
	s := Shape{
		Name:  name,
		N:     n,
		From:  shapeFrom,
		Cross: n,
	}
	s.Level = func(i int) float64 {
		if i < shapeFrom {
			return 1
		}
		return level(i - shapeFrom)
	}
	for i := n - 1; i >= 0 && s.Level(i) >= 1.1-1e-9; i-- {
		s.Cross = i
	}
	return s
}

// Try gives a shape to all methods, jobs times, with normal noise of a CoV.
func (s Shape) Try(cov float64, seed uint64, jobs int) Trial {
	t := Trial{Shape: s, CoV: cov, Jobs: jobs}
	crossed := min(s.Cross, s.N-1)
	spell := Spell{From: crossed, To: s.N, Ladder: crossed != s.From}
	if s.Cross == s.N {
		spell.From = s.From // whatever is reported, is reported wrongly
	}
	level := make([]float64, s.N)
	for i := range level {
		level[i] = s.Level(i)
	}
	for job := range uint64(jobs) {
		rng := rand.New(rand.NewPCG(seed, job))
		for method, reports := range Reports(plain(rng, level, 1000, cov)) {
			if r, found := spell.first(reports); found {
				t.Found[method]++
				t.Delays[method] = append(t.Delays[method], r.Seen-spell.From)
			}
		}
	}
	return t
}
