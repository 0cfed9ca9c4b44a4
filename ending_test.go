package falcon

import "testing"

func TestOrderedEnds(t *testing.T) {
	for e, want := range map[Ending]bool{
		{}:                                          false,
		{Known: true}:                               false,
		{Known: true, Signal: 15}:                   true,
		{Known: true, Signal: 2}:                    true,
		{Known: true, Signal: 9}:                    false,
		{Known: true, Status: 143}:                  true,
		{Known: true, Status: 130}:                  true,
		{Known: true, Status: 137}:                  false,
		{Known: true, Status: 1}:                    false,
		{Signal: 15}:                                false,
		{Known: true, Status: 15}:                   false,
		{Known: true, Status: 128}:                  false,
		{Raised: Raised{Kind: "KeyboardInterrupt"}}: true,
		{Known: true, Status: 1, Raised: Raised{Kind: "ConnectionError"}}: false,
	} {
		if e.Ordered() != want {
			t.Errorf("%+v: ordered %t", e, !want)
		}
		interrupted := want && (e.Signal == 2 || e.Status == 130 || e.Raised.Kind != "")
		if e.Interrupted() != interrupted {
			t.Errorf("%+v: interrupted %t", e, !interrupted)
		}
	}
}

// Without an adapter what ranks printed last tells whether they failed by one error; what others
// may have caused is none.
func TestSameErrorByWords(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ValueError: rank 1 can't read shard 17", "ValueError: rank 0 can't read shard 3", true},
		{
			"json.decoder.JSONDecodeError: Expecting value",
			"json.decoder.JSONDecodeError: Expecting value",
			true,
		},
		{"ValueError: rank 1 can't read", "KeyError: 'a'", false},
		{"ValueError: boom", "ValueError: bang", false},
		{"ValueError: boom", "", false},
		{"", "", false},
		{"step 41", "step 41", false},
		{
			"torch.AcceleratorError: CUDA error: an operation failed",
			"torch.AcceleratorError: CUDA error: an operation failed",
			false,
		},
		{
			"torch.distributed.DistBackendError: NCCL error in X",
			"torch.distributed.DistBackendError: NCCL error in X",
			false,
		},
		{
			"RuntimeError: Connection closed by peer [127.0.0.1]:1",
			"RuntimeError: Connection closed by peer [127.0.0.1]:2",
			false,
		},
		{"torch.OutOfMemoryError: no room", "torch.OutOfMemoryError: no room", false},
		{"TimeoutError: [Errno 110]", "TimeoutError: [Errno 110]", false},
	} {
		a := Ending{Known: true, Status: 1, Said: c.a}
		b := Ending{Known: true, Status: 1, Said: c.b}
		if a.SameError(b) != c.want || b.SameError(a) != c.want {
			t.Errorf("%q and %q: same is %t", c.a, c.b, !c.want)
		}
	}
	reported := Ending{Raised: Raised{Kind: "ValueError", Where: "train.py:1"}, Said: "ValueError: a"}
	if reported.SameError(Ending{Said: "ValueError: a"}) || !reported.SameError(reported) {
		t.Error("what one adapter reports is compared with what another rank printed")
	}
}
