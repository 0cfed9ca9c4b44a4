// Package detect is the fail-slow detector of one job as a pure machine
// (FALCON §4): iteration samples, profiles and telemetry go in; incidents and
// requests for profile windows and tests come out.
//
// It guarantees: same inputs in the same order, same outputs. Time comes in as
// an argument. It starts no goroutine, does no I/O and holds no lock; the
// engine's one goroutine owns the machine. Memory is bounded by ranks ×
// Config.History samples and two minutes of readings per device.
//
// Use: Step each input, then take Ready, persist and act on it, then Advance.
// Tick about once a second.
//
// # From a slow iteration to an incident
//
// Every rank's series, and the job's (the slowest rank of each iteration),
// has a bocd.Tracker; iterations in which Falcon held a rank are in none. Under lockstep all
// ranks slow together, so a verified onset of the job's series, or of half of
// the ranks within a few iterations, is one incident. Its onset is the median
// placement, moved past a hiccup before it. The tracker itself finds slow drift
// and ladders of small steps.
//
// A slowdown is reported as an incident once a culprit is named, or once it
// has lasted 8 iterations; its iteration of detection is that of verification
// in either case. One that is over before is a line in the log and takes no id.
// The third of about the same level within 100 iterations is reported at once, as
// intermittent, and stays open between its bursts until 100 iterations went
// without one; bursts at one distance are the job's own rhythm and no incident.
//
// A verified onset asks for a profile of 4 iterations. detect/peer compares,
// detect/cause explains; a rank that no counter accuses must be accused by two
// windows, slow in nearly all their iterations, and explain a third of the
// slowdown; groups and links alone must explain an eighth. Refused and incomplete windows are asked for again, a bounded
// number of times; then what is there is judged with less confidence, and
// "unknown" is the verdict where no rank or group stands out, and tried again every 50 iterations.
//
// After the warm-up one profile judges peers, so that a fault present from the
// start is found too (FromStart, two windows), or else is kept as the healthy
// state.
//
// # Tests
//
// A verdict that no counter proves, with a thin margin, without its link, or
// below 0.9 asks for a validation (Ready.Asks): the suspects and those with the
// same work multiply, the links of slow groups and pairs are exchanged over,
// with others where they are too few for a median; where timing decides nothing
// all ranks and rings. Twice at most per incident, never while an action
// settles or holds. The results (Validated) judge again what the window showed:
// a test names the link of a slow group and clears or accuses a slow rank's
// GPU; it never makes a culprit that timing clears. A refusal costs a tenth of
// the confidence. Relief windows wait for the answer, at most 15 s.
//
// # The watch, throughput, recurrence
//
// A quiet job is profiled for 2 iterations every 200, a minute apart at least. Every iteration of any
// window is a step of the rank-level watch: self time
// over 1.5 x the peers' median for 3 steps running is failing: that is logged, and an
// incident where waits or counters confirm it; fewer are transient, and noted.
// A job 24 iterations below 80 % of its best throughput without an onset opens
// an incident; below a given peak it is noted and looked at. Devices and links
// that were named before are listed with a verdict and by Recurring; that changes
// neither severity nor confidence.
//
// # Actions, relief, identity
//
// Changes placed from 2 iterations before to 8 after an action's first
// iteration belong to the action. While it holds the iteration time hides the
// fault: the culprit is profiled for 2 iterations every 20, every 10 once it
// looks healthy or its clock is back, and three healthy windows running are
// relief. Without an action relief is the level back within 5 % of healthy, or
// a verified downward change and a healthy culprit. An incident closes when it
// is relieved and none of its actions holds.
//
// While a node that an incident names is silent (no sample for 3 s, and more than
// 8 iterations behind), its relief waits, ten minutes at most, and the log says so;
// the looks begin again once it is heard.
//
// A second slowdown while incidents are open stays unreported until a profile says
// whether another rank is slow. Ranks that two windows running show slow
// without an onset of their own (it hid behind an action) are reported too. A slow
// GPU hides no slow link and the other way round. A culprit that gets worse is
// the same incident; a second link of one ring looks like that in timing, so
// the ring is tested again, and a link found then is an incident of its own.
//
// Where most replicas are slow their median is slow too: a rank, or a group
// between nodes, is then held against its own healthy past, less what all of its
// stage, or of its kind, share. Replicas that get slow one after the other are an
// incident each.
//
// # Placements, restarts
//
// An action may move ranks to other devices within a job epoch (Acted.Placement,
// S3). Series go on by rank. What belongs to devices follows them: pace, healthy
// profile, the watch of the ranks, counters, incidents, whose ranks are derived again.
// Groups keep their healthy transfers by their members, as communicators are new.
// The baseline stays, see move. Eight iterations later the ranks are profiled;
// until then Speeds and Profile have none. A window asked for before is dropped.
//
// A slow link off its ring is never relieved for being unused. What it carries
// now is judged (a ring, or messages that showed it slow there); else, once it
// looked at rest in three windows, ports included, a test decides (line.go).
// Tests of one link are 20, 40, 80 … at most 640 iterations apart. One clears
// the link when it ended and measured both directions. Where two running bring
// nothing though all nodes are heard, nine looks and ports at rest at both ends
// relieve it, and the log says so; without readings of ports it stays open.
//
// A restart from a checkpoint (S4) is a new job epoch whose iterations go on.
// Incidents whose devices and links are all gone are relieved with its first
// iteration; others are watched from its first window on.
//
// Work of the job's own that grew (all ranks, a stage, uneven sequences) is an
// incident that blames no hardware; after 500 iterations it is the job's pace.
//
// Incidents name devices and links; their ranks follow the placement. A new
// job epoch forgets series, baseline and healthy profile, not incidents.
package detect
