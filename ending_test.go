package falcon

import "testing"

func TestOrderedEnds(t *testing.T) {
	for e, want := range map[Ending]bool{
		{}:                         false,
		{Known: true}:              false,
		{Known: true, Signal: 15}:  true,
		{Known: true, Signal: 2}:   true,
		{Known: true, Signal: 9}:   false,
		{Known: true, Status: 143}: true,
		{Known: true, Status: 130}: true,
		{Known: true, Status: 137}: false,
		{Known: true, Status: 1}:   false,
		{Signal: 15}:               false,
		{Known: true, Status: 15}:  false,
		{Known: true, Status: 128}: false,
	} {
		if e.Ordered() != want {
			t.Errorf("%+v: ordered %t", e, !want)
		}
	}
}
