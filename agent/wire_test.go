package agent

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// Every field of a port's reading goes to the engine.
func TestTelemetryCarriesPorts(t *testing.T) {
	f := TelemetryFrame(nil, []falcon.NICReading{{
		NIC:           "n1.nic0",
		AtNs:          1,
		RateMbps:      2,
		Active:        true,
		XmitWait:      3,
		CNPSent:       4,
		CNPHandled:    5,
		ECNMarked:     6,
		Retransmits:   7,
		OutOfSequence: 8,
		LinkDowned:    9,
		SymbolErrors:  10,
		XmitBytes:     11,
		RcvBytes:      12,
		Emulated:      true,
		Err:           "e",
	}}, falcon.HostReading{})
	n := f.GetTelemetry().GetNics()[0]
	fields := n.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !n.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is missing", fields.Get(i).Name())
		}
	}
	if n.GetXmitWait() != 3 ||
		n.GetCnpSent() != 4 ||
		n.GetCnpHandled() != 5 ||
		n.GetEcnMarked() != 6 ||
		n.GetRetransmits() != 7 ||
		n.GetRcvBytes() != 12 {
		t.Errorf("%v", n)
	}
}

func TestStateNamesPortAndWorkspace(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.nicOf = func(d falcon.Device) falcon.NIC {
			return falcon.NIC("nic of " + string(d))
		}
		s := n.dir.add(100, 3, "n1.g1")
		s.set(func() { s.control.TestWorkspace = 64 << 20 })
		wait(time.Second)
		st := n.ship.states()[0]
		if st.Nic != "nic of n1.g1" || st.TestWorkspace != 64<<20 {
			t.Fatalf("state %v", st)
		}
		n.dir.exits[100].die("exited normally")
		wait(time.Second)
		states := n.ship.states()
		if len(states) != 2 || states[1].Alive || states[1].Nic != "nic of n1.g1" {
			t.Fatalf("states %v", states)
		}
	})
}

// The mesh that an adapter declares is checked; older engines get its numbers where
// these say the same.
func TestStateHasTheMesh(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 3, "n1.g1")
		for _, c := range []struct {
			declared, sent string
			tp, dp, pp     int32
		}{
			{"tp=2,cp=2,dp=4,pp=2", "tp=2,cp=2,dp=4,pp=2", 4, 4, 2},
			{"tp=2,pp=2,dp=4", "tp=2,pp=2,dp=4", 0, 0, 0}, // other ranks than tp, dp and pp name
			{"tp=2,dp=\x1b[2J", "", 7, 7, 7},
			{"dp=1000000000", "", 7, 7, 7},
			{"", "", 7, 7, 7},
		} {
			s.set(func() {
				s.control.Mesh = c.declared
				s.control.TP = 7
				s.control.DP = 7
				s.control.PP = 7
			})
			wait(time.Second)
			states := n.ship.states()
			st := states[len(states)-1]
			if st.Mesh != c.sent ||
				st.Tp != c.tp ||
				st.Dp != c.dp ||
				st.Pp != c.pp {
				t.Errorf("%q: %q, tp %d, dp %d, pp %d",
					c.declared, st.Mesh, st.Tp, st.Dp, st.Pp)
			}
		}
	})
}
