package falcon_test

import (
	"testing"

	"github.com/failslow/falcon"
)

// A link's name is read back as the same link, also where nodes have dashes in
// their names: the journal holds links by name.
func TestLinkNames(t *testing.T) {
	for _, l := range []falcon.Link{
		falcon.NewLink("n3", "n1"),
		falcon.NewLink("gpu-2", "gpu-1"),
		falcon.NewLink("a-b-1", "a-b-2"),
	} {
		if got, err := falcon.ParseLink(l.String()); err != nil || got != l {
			t.Errorf("%s is read as %v (%v)", l, got, err)
		}
	}
	for _, name := range []string{"", "n1", "n1-n1", "-n1", "n1-", "a-b-a-b", "a-b-c", "a--b-c-"} {
		if l, err := falcon.ParseLink(name); err == nil {
			t.Errorf("%q is read as %v", name, l)
		}
	}
}
