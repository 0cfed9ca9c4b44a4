package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/hang"
)

// addAll reads files by name.
func addAll(t *testing.T, files map[string]string) *trace.Records {
	t.Helper()
	var rec trace.Records
	for name, text := range files {
		add := rec.Add
		if strings.Contains(name, "stack") {
			add = rec.AddStacks
		}
		if err := add(name, strings.NewReader(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return &rec
}

// dumpText is one rank's dump of a group of four: the entries as
// "number state name", the status by the group's number.
func dumpText(status string, entries ...string) string {
	var list []string
	for i, e := range entries {
		var seq int
		var state, name string
		if _, err := fmt.Sscanf(e, "%d %s %s", &seq, &state, &name); err != nil {
			panic(err)
		}
		name = strings.ReplaceAll(name, "_to_", " ")
		pair := strings.ContainsAny(name, "<>")
		list = append(list, fmt.Sprintf(
			`{"record_id":%d,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":%d,"p2p_seq_id":%d,"profiling_name":%q,"input_sizes":[[8]],"output_sizes":[[8]],"input_dtypes":["Float"],"state":%q,"is_p2p":%t,"retired":false,
			"frames":[{"name":"wait","filename":"/x/torch/distributed/c.py","line":1},{"name":"step","filename":"/job/train.py","line":12}]}`,
			100+i, seq, i, name, state, pair,
		))
	}
	return `{"version":"2.9","nccl_comm_state":{},"pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2, 3]"}},"pg_status":{` + status + `},"entries":[` + strings.Join(
		list,
		",",
	) + `]}`
}

func status(asked, done int) string {
	return fmt.Sprintf(
		`"0":{"last_enqueued_collective":%d,"last_started_collective":-1,"last_completed_collective":%d}`,
		asked, done,
	)
}

func TestHangsOfDumps(t *testing.T) {
	waits := dumpText(status(9, 8), "9 scheduled nccl:all_reduce")
	for name, c := range map[string]struct {
		files map[string]string
		ranks []falcon.Rank
		kind  hang.Kind // of the first culprit, or of the first candidate
		say   string
	}{
		"behind by its status": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": waits,
				"_dump_2": dumpText(status(8, 8)),
				"_dump_3": waits,
			},
			[]falcon.Rank{2},
			hang.Behind,
			"rank 2 never called it, last call 8",
		},
		"place": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": waits,
				"_dump_2": dumpText(status(8, 8)),
				"_dump_3": waits,
			},
			[]falcon.Rank{2},
			hang.Behind,
			"(step at train.py:12)",
		},
		"no dump": {
			map[string]string{"_dump_0": waits, "_dump_1": waits, "_dump_3": waits},
			[]falcon.Rank{2},
			hang.Missing,
			"Rank 2 left no dump; ranks 0, 1, 3 wait in collective 9",
		},
		"two without a dump": {
			map[string]string{"_dump_0": waits, "_dump_1": waits},
			nil,
			hang.Missing,
			"ambiguous",
		},
		"empty dump": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": waits,
				"_dump_2": `{"version":"2.9","entries":[]}`,
				"_dump_3": waits,
			},
			nil,
			hang.Behind,
			"ambiguous",
		},
		"older dump": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": waits,
				"_dump_2": dumpText(status(-8, -8)),
				"_dump_3": waits,
			},
			nil,
			hang.Behind,
			"older than the others",
		},
		"its device stopped": {map[string]string{
			"_dump_0": dumpText(status(9, 8), "9 scheduled nccl:all_reduce"),
			"_dump_1": waits,
			"_dump_2": dumpText(
				status(9, 5),
				"6 scheduled nccl:all_reduce",
				"7 scheduled nccl:all_reduce",
				"9 scheduled nccl:all_reduce",
			),
			"_dump_3": waits,
		}, []falcon.Rank{2}, hang.Device, "its peers have completed up to 8"},
		"other operation": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": waits,
				"_dump_2": dumpText(status(9, 8), "9 scheduled nccl:_all_gather_base"),
				"_dump_3": waits,
			},
			[]falcon.Rank{2},
			hang.Mismatch,
			"rank 2 calls allgather, the others allreduce of 8 Float by 3",
		},
		"two against two": {
			map[string]string{
				"_dump_0": waits,
				"_dump_1": dumpText(status(9, 8), "9 scheduled nccl:broadcast"),
				"_dump_2": dumpText(status(9, 8), "9 scheduled nccl:broadcast"),
				"_dump_3": waits,
			},
			nil, hang.Mismatch, "without a majority",
		},
		"no receive": {map[string]string{
			"_dump_0": dumpText(status(3, 2), "8 scheduled nccl:send_to_0->1"),
			"_dump_1": dumpText(status(2, 2)),
			"_dump_2": dumpText(status(3, 2), "8 scheduled nccl:recv_to_2<-1"),
			"_dump_3": dumpText(status(3, 2), "8 scheduled nccl:recv_to_3<-1"),
		}, []falcon.Rank{1}, hang.Behind, "Call nccl:send 0->1 of group"},
		"a batch that ended": {map[string]string{
			"_dump_0": waits,
			"_dump_1": waits,
			"_dump_3": waits,
			"_dump_2": strings.Replace(
				dumpText(status(7, 7), "8 scheduled nccl:send_to_2->3", "8 completed nccl:coalesced"),
				`"is_p2p":false`,
				`"is_p2p":true`,
				1,
			),
		}, []falcon.Rank{2}, hang.Behind, ""},
		"its stack waits elsewhere": {map[string]string{
			"_dump_0":     waits,
			"_dump_1":     waits,
			"_dump_2":     dumpText(status(8, 8)),
			"_dump_3":     waits,
			"stack.2.txt": "Thread 0x00007f (most recent call first):\n  File \"/x/threading.py\", line 3 in wait\nCurrent thread 0x01 (most recent call first):\n  File \"/x/torch/distributed/distributed_c10d.py\", line 9 in barrier\n  File \"save.py\", line 4 in save\n",
		}, nil, hang.Behind, "by its stack it waits for others in barrier"},
		"its stack": {map[string]string{
			"_dump_0":     waits,
			"_dump_1":     waits,
			"_dump_2":     dumpText(status(8, 8)),
			"_dump_3":     waits,
			"stack.2.txt": "Process 7: python train.py\nPython v3.11\n\nThread 7 (idle): \"MainThread\"\n    read (data.py:33)\n    step (train.py:12)\nThread 8 (idle): \"Worker\"\n    wait (threading.py:1)\n",
		}, []falcon.Rank{2}, hang.Behind, "its main thread is in read at data.py:33"},
		"RAS knows the dead": {map[string]string{
			"_dump_0": waits,
			"_dump_1": waits,
			"ras.json": rasText(
				4,
				`{"rank":2,"host":"n1","pid":7,"status":{"considered_dead":true}},{"rank":3,"host":"n1","pid":8,"status":{"unresponsive":true}}`,
				9,
				9,
			),
		}, []falcon.Rank{2, 3}, hang.Missing, "RAS: rank 2, process 7 on n1, is reported dead"},
	} {
		rec := addAll(t, c.files)
		r := DumpsWith(rec.Dumps(), Extra{rec.RAS(), rec.Stacks()}, peer.Rules{})
		var kind hang.Kind
		if r.Hang != nil {
			for _, p := range slices.Concat(r.Hang.Candidates, r.Hang.Culprits) {
				kind = p.Kind
			}
		}
		if !slices.Equal(r.Ranks, c.ranks) && len(r.Ranks)+len(c.ranks) > 0 ||
			c.kind != "" && kind != c.kind ||
			c.say != "" && !says(r, c.say) {
			t.Errorf("%s: %v, %s\n%+v", name, r.Ranks, kind, r.Evidence)
		}
	}
}

// rasText is RAS' output on a communicator: the missing ranks, and the number of
// collectives of the others.
func rasText(size int, missing string, calls ...int) string {
	var ranks []string
	for r, n := range calls {
		ranks = append(ranks, fmt.Sprintf(
			`{"rank":%d,"host":"n0","pid":%d,"cuda_dev":%d,"status":{"init_state":0,"async_error":0},"collective_counts":{"Broadcast":1,"AllReduce":%d}}`,
			r, 100+r, r, n-1,
		))
	}
	return fmt.Sprintf(
		`{"nccl_version":"2.29.1","cuda_runtime_version":13000,"timestamp":"2026-11-25 10:00:00","communicators_count":1,"communicators":[{"hash":"0x1","secondary_hash":"0x2:0x3","size":%d,"ranks_count":%d,"missing_ranks_count":1,"ranks":[%s],"missing_ranks":[%s]}],"ras":{"collection_time_sec":0.1,"timeouts_count":0}}`,
		size, len(calls), strings.Join(ranks, ","), missing,
	)
}

func TestRASAlone(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		ranks []falcon.Rank
		say   string
	}{
		"even":   {rasText(4, "", 9, 9, 9, 9), nil, "the same number of collectives"},
		"behind": {rasText(4, "", 9, 9, 8, 9), []falcon.Rank{2}, "rank 2 never called it, last call 8"},
		"dead": {
			rasText(
				4,
				`{"rank":3,"host":"n1","pid":7,"cuda_dev":0,"status":{"unresponsive":true,"considered_dead":true}}`,
				9,
				9,
				9,
			),
			[]falcon.Rank{3},
			"reported dead",
		},
		"none": {`{"communicators":[]}`, nil, "all 0 communicators"},
	} {
		rec := addAll(t, map[string]string{"ras.json": c.text})
		r := RAS(*rec.RAS())
		if !slices.Equal(r.Ranks, c.ranks) && len(r.Ranks)+len(c.ranks) > 0 || !says(r, c.say) {
			t.Errorf("%s: %v\n%+v", name, r.Ranks, r.Evidence)
		}
	}
}

// Dumps with invalid groups: names in Falcon's own format, thousands of ranks without
// a dump, members that don't list themselves.
func TestStrangeGroups(t *testing.T) {
	entry := func(group, name, state string) string {
		return fmt.Sprintf(
			`{"record_id":5,"pg_id":0,"process_group":[%q,"x"],"collective_seq_id":9,"profiling_name":%q,"state":%q,"is_p2p":%t}`,
			group, name, state, strings.Contains(name, "send"),
		)
	}
	doc := func(config string, entries ...string) string {
		return `{"version":"2.9","pg_config":{` + config +
			`},"pg_status":{"0":{"last_enqueued_collective":9,"last_completed_collective":8},"x":{},"1":[]},"entries":[` + strings.Join(
			entries,
			",",
		) + `]}`
	}
	for name, files := range map[string]map[string]string{
		"own words": {
			"_dump_0": doc(
				`"a (b":{"desc":"(default_pg)","ranks":"[0, 1]"}`,
				entry("a (b", "nccl:all_reduce", "scheduled"),
			),
			"_dump_1": doc(`"a (b":{"desc":"c","ranks":[0,1]}`),
		},
		"not a member": {
			"_dump_0": doc(`"a":{"ranks":"[1, 2]"}`, entry("a", "nccl:all_reduce", "scheduled")),
			"_dump_1": doc(`"a":{"ranks":"[0, 2]"}`, entry("a", "nccl:send 0->7", "scheduled")),
		},
		"far peer": {
			"_dump_0": doc(
				`"0":{"ranks":"[0, 1]"}`,
				entry("0", "nccl:send 0->99999999999999999999", "scheduled"),
				entry("0", "nccl:send", "scheduled"),
				entry("0", "nccl:send 0->-1", "scheduled"),
			),
		},
		"no group": {
			"_dump_0": doc(``, `{"record_id":1,"collective_seq_id":1,"profiling_name":"","state":""}`),
		},
		"high rank": {
			"_dump_0":      doc(``, entry("0", "gloo:all_reduce", "scheduled")),
			"_dump_900000": doc(``, entry("0", "gloo:all_reduce", "scheduled")),
		},
		"to itself": {
			"_dump_0": doc(`"0":{"ranks":"[0, 1]"}`, entry("0", "nccl:send 0->0", "scheduled")),
		},
		"thousands": {
			"_dump_0": doc(
				`"0":{"ranks":"[`+strings.Repeat("1, ", 5)+`100000]"}`,
				entry("0", "nccl:all_reduce", "scheduled"),
			),
		},
		"other batches": {
			"_dump_0": doc(
				`"0":{"ranks":"[0, 1]"}`,
				entry("0", "nccl:coalesced", "scheduled"),
				entry("0", "nccl:send 0->1", "scheduled"),
			),
			"_dump_1": doc(`"0":{"ranks":"[0, 1]"}`),
		},
	} {
		rec := addAll(t, files)
		r := Dumps(rec.Dumps(), peer.Rules{})
		if r.Hang == nil && name != "no group" {
			t.Errorf("%s: no rank waits: %+v", name, r.Evidence)
		}
		for _, rank := range r.Ranks {
			if rank == 0 {
				t.Errorf("%s: the rank that waits is named: %+v", name, r.Evidence)
			}
		}
	}
}

// FuzzHang judges all input that decodes, together with a valid dump.
func FuzzHang(f *testing.F) {
	f.Add(
		dumpText(status(9, 8), "9 scheduled nccl:all_reduce"),
		dumpText(status(8, 8), "9 scheduled nccl:recv_to_1<-0"),
		rasText(4, "", 9, 8, 9, 9),
		"Thread 0x1:\n  File \"a.py\", line 1 in b\n",
	)
	f.Add(
		`{"pg_config":{"":{"ranks":"[0, 1]"}},"pg_status":{"0":{"last_enqueued_collective":"4","last_completed_collective":"3"}},"entries":[{"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":3,"profiling_name":"gloo:all_gather","input_sizes":[[8]],"output_sizes":[[4,8]],"state":"scheduled","retired":true}]}`,
		`{"entries":[]}`,
		`{"communicators":[]}`,
		"Process 1\n",
	)
	f.Fuzz(func(t *testing.T, first, second, ras, stacks string) {
		var rec trace.Records
		_ = rec.Add("_dump_3", strings.NewReader(dumpText(status(9, 8), "9 scheduled nccl:all_reduce")))
		for name, text := range map[string]string{"_dump_0": first, "_dump_1": second, "ras.json": ras} {
			_ = rec.Add(name, strings.NewReader(text)) // invalid input is ignored
		}
		_ = rec.AddStacks("stack.1.txt", strings.NewReader(stacks))
		checkNumbers(t, func() (any, error) {
			return DumpsWith(rec.Dumps(), Extra{rec.RAS(), rec.Stacks()}, peer.Rules{}), nil
		})
		if rec.RAS() != nil {
			checkNumbers(t, func() (any, error) {
				return RAS(*rec.RAS()), nil
			})
		}
	})
}
