package sentencetest

import (
	"reflect"
	"testing"
)

// Check plays each script as it is, and with each sentence of its inputs replaced, and fails where
// that makes a difference to what the machine did, or where fewer than least inputs had a sentence.
func Check[I any](
	t *testing.T,
	files []string,
	least int,
	replay func(file string, given func(I) I) (did []string),
	blank func(I) I,
) {
	t.Helper()
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	replaced := 0
	for _, file := range files {
		want := replay(file, func(in I) I { return in })
		got := replay(file, func(in I) I {
			out := blank(in)
			if !reflect.DeepEqual(out, in) {
				replaced++
			}
			return out
		})
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) {
				t.Errorf("%s: without sentences it acts %d times, with them %d", file, len(got), len(want))
				break
			}
			if got[i] != want[i] {
				t.Errorf("%s: without sentences it does\n%s\nwith them\n%s", file, got[i], want[i])
				break
			}
		}
	}
	if replaced < least {
		t.Errorf("%d sentences were replaced: the test proves nothing", replaced)
	}
}
