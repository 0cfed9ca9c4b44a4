package sentencetest

import (
	"reflect"
	"testing"
)

func TestBlank(t *testing.T) {
	type name string
	type inner struct{ Why, ID string }
	type outer struct {
		Node  name
		Text  string
		None  string
		Parts []inner
		Ptr   *inner
		Any   any
		Map   map[string]string
		kept  string
	}
	in := outer{
		Node:  "n1",
		Text:  "why it is so",
		Parts: []inner{{"because", "R-1"}},
		Ptr:   &inner{"because", "R-2"},
		Any:   inner{"because", "R-3"},
		Map:   map[string]string{"n1": "rack 4"},
		kept:  "own",
	}
	want := outer{
		Node:  "n1",
		Text:  "x",
		Parts: []inner{{"x", "R-1"}},
		Ptr:   &inner{"x", "R-2"},
		Any:   inner{"x", "R-3"},
		Map:   map[string]string{"n1": "x"},
		kept:  "own",
	}
	if got := Blank(in, "ID"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if in.Text != "why it is so" || in.Parts[0].Why != "because" || in.Ptr.Why != "because" {
		t.Errorf("the original has changed: %+v", in)
	}
}
