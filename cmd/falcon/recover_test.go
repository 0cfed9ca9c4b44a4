package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Without a job there is nothing to recover, and every command says so.
func TestRecoveryCommandsWithoutAJob(t *testing.T) {
	h, _ := testEngine(t)
	for _, c := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{[]string{"recovery", "list"}, 0, "no recoveries\n", ""},
		{[]string{"recovery", "list", "--json"}, 0, `"recoveries": []`, ""},
		{
			[]string{"recovery", "show", "REC-0001"},
			1,
			"",
			`no recovery "REC-0001"; list them with: falcon recovery list`,
		},
		{[]string{"recovery", "abort", "REC-0001"}, 1, "", `no recovery "REC-0001"`},
		{[]string{"recovery", "map"}, 0, "no map: no job is known\n", ""},
		{[]string{"decide", "REC-0001", "--approve"}, 1, "", `no recovery "REC-0001"`},
		{[]string{"decide", "REC-0001", "--veto", "--rung", "S2"}, 2, "", "are for incidents"},
		{[]string{"recover", "--node", "n1", "--reason", "fan"}, 1, "", "no node was heard yet"},
		{[]string{"recover", "--rank", "3", "--reason", "leak"}, 1, "", "no node was heard yet"},
		{[]string{"recover", "--lift", "n1", "--reason", "new fan"}, 1, "", "no node was heard yet"},
	} {
		code, out, errs := command(t, append(slices.Clone(c.args), "--connect", h.Socket)...)
		if code != c.code ||
			!strings.Contains(out, c.out) ||
			!strings.Contains(errs, c.errs) ||
			strings.Contains(errs, "engine:") {
			t.Errorf("%v: exit %d, %q, %q; want %d, %q, %q",
				c.args, code, out, errs, c.code, c.out, c.errs)
		}
	}
}

func TestRecoverIsUsedRight(t *testing.T) {
	for say, args := range map[string][]string{
		"give one of --node, --rank, --lift, --bar and --unbar": {"recover"},
		"give one of":           {"recover", "--node", "n1", "--rank", "2", "--reason", "x"},
		"say why with --reason": {"recover", "--node", "n1"},
		"give one recovery":     {"recovery", "show"},
		"takes no arguments":    {"recovery", "list", "x"},
	} {
		if code, _, errs := command(t, args...); code != 2 || !strings.Contains(errs, say) {
			t.Errorf("%v: exit %d, %q, want 2 with %q", args, code, errs, say)
		}
	}
}

// remoteRecovery has every field that a console shows, with control characters.
func remoteRecovery() *falconv1.Recovery {
	return &falconv1.Recovery{
		Id:         "REC-0001\x1b[2J",
		State:      "resumed",
		Generation: 3,
		Attempts:   2,
		DecidedBy:  "policy",
		Faults: []*falconv1.Fault{{
			Kind:     "node",
			Node:     "n1",
			Ranks:    []int32{2, 3},
			Evidence: []string{"nothing was heard\x1b]0;x\a"},
		}},
		Replaced:        map[int32]string{2: "n2.g0", 3: "n2.g1"},
		Survivors:       []int32{0, 1},
		Fenced:          []string{"n1"},
		ResumeIteration: 20,
		BeforeIteration: 20,
		Moves: []*falconv1.ShardMove{{Rank: 2, From: 0}, {
			Rank: 3,
			From: -2,
			Why:  "no replica",
		}},
		PhasesMs:      map[string]float64{"detect": 6000, "suspend": 12.34},
		PredictedMs:   map[string]float64{"suspend": 500},
		StartedUnixNs: 1e9,
		EndedUnixNs:   3e9,
		PlanHash:      "abc",
		Ranks: []*falconv1.RankRecovery{{
			Rank:   2,
			Device: "n2.g0",
			Stage:  "training",
			Pid:    7,
		}},
	}
}

func TestRecoveryIsShown(t *testing.T) {
	s := recoveryReportOf(remoteRecovery())
	var b bytes.Buffer
	if err := writeRecovery(&b, s); err != nil {
		t.Fatal(err)
	}
	if err := listRecoveries(&b, recoveryList{[]recoveryReport{s}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"REC-0001 is resumed (decided by policy): plan abc, generation 3",
		"fault: node on n1, ranks 2, 3", "nothing was heard",
		"rank 2 is replaced on n2.g0", "2 survivors keep their processes",
		"goes on at iteration 20", "rank 2 restores from rank 0",
		"rank 3 restores from storage (no replica)", "12.3 ms", "500.0 ms", "2 of 4 ranks", "2s",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not reported in\n%s", want, b.String())
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\a") {
		t.Error("control characters reach the terminal")
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Resume   int64 `json:"resume_iteration"`
		Replaced map[falcon.Rank]falcon.Device
		Ranks    []struct{ Stage string }
	}
	if err := json.Unmarshal(text, &doc); err != nil ||
		doc.Resume != 20 ||
		doc.Replaced[3] != "n2.g1" ||
		len(doc.Ranks) != 1 ||
		doc.Ranks[0].Stage != "training" {
		t.Errorf("%+v, %v in %s", doc, err, text)
	}
}

func TestMapIsShown(t *testing.T) {
	var b bytes.Buffer
	list := []exposureReport{
		{Domain: "rack r1", Ranks: []int32{4, 5}, Why: "both copies are in it", Checkpoint: 40},
		{Domain: "n1", Spare: true},
	}
	if err := writeMap(&b, exposureMap{Exposures: list}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rack r1", "the state of 2 ranks, the first rank 4",
		"checkpoint of iteration 40: both copies are in it", "restored from replicas", "there",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not reported in\n%s", want, b.String())
		}
	}
}
