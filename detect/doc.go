// Package detect is the fail-slow detector of one job as a pure machine
// (FALCON §4): iteration samples, profiles and telemetry go in; incidents and
// requests for profile windows and tests come out.
//
// It guarantees: same inputs in the same order, same outputs. Time comes in as
// an argument. It starts no goroutine, does no I/O and holds no lock; the
// engine's one goroutine owns the machine. Memory is bounded by ranks ×
// Config.History samples and two minutes of readings per device. It must not
// decide on actions: it only detects, locates and explains.
//
// Use: Step each input, then take Ready, persist and act on it, then Advance.
// Tick about once a second. With Config.CompareAside the profiles of a large window are compared
// by the caller (Ready.Compare), on any goroutine, and the result is an input (Compared): the
// decisions are the same, a little later.
//
// # Parts
//
// Machine routes inputs and owns the order of things. Its parts own their state, and each knows
// only those before it: the job, the samples, the incidents, the history of culprits, the
// baseline, the onset detector, the log of bursts, the log of incidents that may come back, the
// evidence (timing, counters and tests), the log of links, the profiler, the comparison with
// healthy peers, the watch of ranks, the planner of tests, the judge of relief, and the watch of
// links whose ranks moved away.
//
// # From a slow iteration to an incident
//
// Every rank's series, and the job's (the slowest rank of each iteration), has
// a bocd.Tracker; iterations in which Falcon held a rank are left out. Under
// lockstep all ranks slow together, so a verified onset of the job's series, or
// of half of the ranks within a few iterations, is one incident. Its onset is
// the median placement, moved past a hiccup before it. The tracker itself finds
// slow drift and ladders of small steps.
//
// A slowdown is reported as an incident once a culprit is named, or once it has
// lasted 8 iterations; its iteration of detection is that of verification in
// either case. A slowdown that ends before is logged and gets no id. The third
// of about the same level within 100 iterations is reported at once, as
// intermittent, and stays open between its bursts until 100 iterations went
// without one; bursts at equal distances are the job's own rhythm and no
// incident.
//
// A verified onset asks for a profile of 4 iterations. Package peer compares the
// ranks, package cause explains the result. A rank that no counter accuses must
// be accused by two windows, be slow in nearly all their iterations, and explain
// a third of the slowdown; groups and links alone must explain an eighth.
// Refused and incomplete windows are requested again, a bounded number of times;
// then what is there is judged with less confidence. The verdict is "unknown"
// where no rank or group is slow, and the search is repeated every 50 iterations.
//
// After the warm-up one profile judges peers, so that a fault present from the
// start is found too (FromStart, two windows). Without a fault it is kept as the
// healthy state.
//
// # Tests
//
// A verdict asks for a validation (Ready.Asks) where no counter proves it, its
// margin is thin, it names no link, or its confidence is below 0.9. The suspects
// and the ranks with the same work multiply matrices; messages go over the links
// of slow groups and pairs, and over others where a median needs them. Where
// timing decides nothing, all ranks and rings are tested. There are two
// validations per incident at most, and none while an action settles or holds.
// The results (Validated) lead to a new judgement of the same window: a test
// names the link of a slow group and clears or accuses a slow rank's GPU; it
// never makes a culprit that timing clears. A refusal costs a tenth of the
// confidence, a test that was not allowed nothing. Relief windows wait for the answer, at most 15 s.
//
// # Watch, throughput, recurrence
//
// A quiet job is profiled for 2 iterations every 200, at least a minute apart.
// Every iteration of any window is a step of the rank-level watch. A rank whose
// self time is over 1.5 x its peers' median for 3 consecutive steps is failing:
// that is logged, and an incident where waits or counters confirm it. Fewer slow
// steps are logged as transient. A job that runs below 80 % of its best
// throughput for 24 iterations without an onset opens an incident; below a given
// peak its ranks are profiled. Devices and links that were named before are
// listed with a verdict and by Recurring; that changes neither severity nor
// confidence.
//
// A fault that comes and goes is one incident: a slowdown with the culprit and the
// cause of an incident that ended by itself less than two minutes or 100 iterations
// before reopens it, with a count (Incident.Times). It is detected, judged and
// handed out as any other; returns.go says what is no return.
//
// # Actions, relief, identity
//
// Changes placed from 2 iterations before to 8 after an action's first iteration
// belong to the action. While it holds, the iteration time hides the fault: the
// culprit is profiled for 2 iterations every 20, every 10 once it looks healthy
// or its clock is back, and three consecutive healthy windows are relief. Without
// an action, relief is the level back within 5 % of healthy, or a verified
// downward change and a healthy culprit. An incident closes when it is relieved
// and none of its actions holds.
//
// While a node that an incident names is silent (no sample for 3 s, and more than
// 8 iterations behind), its relief waits, at most ten minutes, and that is
// logged. Healthy windows are counted from zero once it is heard again.
//
// A second slowdown while incidents are open stays unreported until a profile
// shows whether another rank is slow. Ranks that two consecutive windows show
// slow without an onset of their own (it hid behind an action) are reported too.
// A slow GPU hides no slow link, nor a slow link a slow GPU. A culprit that gets
// worse is the same incident; a second link of one ring looks like that in
// timing, so the ring is tested again, and a link found then is an incident of
// its own.
//
// Where most replicas are slow their median is slow too: a rank, or a group
// between nodes, is then compared with its own healthy past, less what all of its
// stage, or of its kind, share. Replicas that get slow one after the other are an
// incident each.
//
// # Placements, restarts
//
// An action may move ranks to other devices within a job epoch (Acted.Placement,
// S3). Series stay with the rank. What belongs to devices follows them: pace,
// healthy profile, the watch of ranks, counters and incidents, whose ranks are
// derived again. Groups keep their healthy transfers by their members, as
// communicators are new. The baseline stays. Three iterations later the ranks are
// profiled; until then Speeds and Profile have none. A window requested before is
// dropped.
//
// A slow link off its ring is not relieved for carrying nothing. What it carries
// now is judged (a ring, or messages that showed it slow there); otherwise, once
// three windows saw it and its ports at rest, a test decides. Tests of one link
// are 20, 40, 80 … at most 640 iterations apart. A test clears the link when it
// ended and measured both directions. Where two consecutive tests bring no result
// though all nodes are heard, nine windows and ports at rest at both ends relieve
// it, and that is logged; without readings of ports it stays open.
//
// A restart from a checkpoint (S4) is a new job epoch whose iterations go on.
// Incidents whose devices and links are all gone are relieved with its first
// iteration; others are watched from its first window on.
//
// Work of the job's own that grew (all ranks, a stage, uneven sequences) is an
// incident that blames no hardware; after 500 iterations it is the job's pace.
// While nothing but such incidents is open, or ones of unknown cause, ranks are
// looked at every 20 iterations, 10 s apart: messages that take twice their usual time in two
// looks running are an incident of their own, although no onset could be told.
//
// Incidents name devices and links; their ranks follow the placement. A new
// job epoch forgets series, baseline and healthy profile, not incidents.
// One that Falcon did not begin may be of another job: what the open incidents know of
// the job's pace is put aside, nothing is charged, and the first iteration decides. If
// it is in the first half of those that the job had reached, the pace is forgotten.
package detect
