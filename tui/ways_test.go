package tui

import (
	"testing"

	"pgregory.net/rapid"
)

// moveBytes spell moves, each long after the one before.
func moveBytes(scene byte, moves ...string) []byte {
	out := []byte{scene}
	for _, k := range moves {
		for i, x := range sessionMoves {
			if x == k {
				out = append(out, 3, byte(i))
				break
			}
		}
	}
	return out
}

// ways are sessions that come to an effect: what the random ones begin from.
var ways = [][]byte{
	moveBytes(0, "a", "tab", "enter"),
	moveBytes(0, "c", "down", "tab", "enter"),
	moveBytes(0, "6", "x", "tab", "enter"),
	moveBytes(0, "5", "j", "j", "x", doWord, "enter", "y", "enter", "enter"),
	moveBytes(1, "a", "tab", "enter"),
	moveBytes(2, "a", doWord, "tab", "y", "tab", "enter"),
	moveBytes(2, "a", "tab", doWord, "tab", doPaste, "tab", "enter"),
	moveBytes(3, "a", "tab", "enter"),
	moveBytes(4, "F", "tab", "enter"),
	moveBytes(5, "a", "tab", "enter"),
	moveBytes(5, "7", "X", "tab", "enter"),
	moveBytes(6, "a", "tab", "enter"),
	moveBytes(6, "a", doTurn, "tab", "enter"),
	moveBytes(6, "i", "i", "a", "tab", "enter"),
	moveBytes(6, "5", "[", "a", doTurn, "tab", "enter"),
	moveBytes(6, "5", "[", "j", "j", "x", doWord, "enter", "y", "enter", "enter"),
	moveBytes(8, "a", "tab", "enter"),
	// past the rung that waits for a second person
	moveBytes(10, "5", "j", "x", doWord, "enter", "y", "enter", "enter"),
}

// The safe side, too, is of what the question shows: a veto, and the withdrawal
// of what is approved.
func TestVetoesAreOfWhatIsShown(t *testing.T) {
	all := scenes(t)
	for _, at := range []byte{0, 1, 6, 7, 8, 9, 10} {
		if s := replayed(t, all, moveBytes(at, "v", doWord, "enter")); s.vetoes != 1 {
			t.Errorf("scene %d: %d vetoes", at, s.vetoes)
		}
	}
}

// Each way leads somewhere: the tests below would prove nothing without.
func TestTheFullPathsLeadSomewhere(t *testing.T) {
	all := scenes(t)
	for i, w := range ways {
		if n := play(t, all, w); n != 1 {
			t.Errorf("way %d had %d effects", i, n)
		}
	}
}

// No random detour from the ways has an effect that the path doesn't allow.
func TestNoEffectWithoutTheFullPath(t *testing.T) {
	all := scenes(t)
	effects := 0
	rapid.Check(t, func(t *rapid.T) {
		moves := []byte{byte(rapid.IntRange(0, len(all)-1).Draw(t, "scene"))}
		for range rapid.IntRange(1, 5).Draw(t, "parts") {
			w := rapid.SampledFrom(ways).Draw(t, "way")
			from := 1 + 2*rapid.IntRange(0, (len(w)-1)/2-1).Draw(t, "from")
			moves = append(moves, w[from:]...)
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				moves = append(moves,
					rapid.Byte().Draw(t, "pass"),
					rapid.Byte().Draw(t, "key"),
				)
			}
		}
		effects += play(t, all, moves)
	})
	t.Logf("%d effects", effects)
	if effects == 0 && !testing.Short() {
		t.Error("no random session had any effect: the test proves nothing")
	}
}

func FuzzKeys(f *testing.F) {
	all := scenes(f)
	for _, w := range ways {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, moves []byte) { play(t, all, moves) })
}
