// Package detect is the fail-slow detector of one job as a pure machine
// (FALCON §4): iteration samples, profiles and telemetry go in; incidents and
// requests for profile windows come out.
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
// has a bocd.Tracker; time paused by Falcon never counts. Under lockstep all
// ranks slow together, so a verified onset of the job's series, or of half of
// the ranks within a few iterations, is one incident. Its onset is the median
// placement, moved past a hiccup before it. The tracker itself tells slow drift
// and ladders of small steps.
//
// A verified onset asks for a profile of 4 iterations. detect/peer compares,
// detect/cause explains; a rank that no counter accuses must be accused by two
// windows. Refused and incomplete windows are asked for again, a bounded
// number of times; then what is there is judged with less confidence, and
// "unknown" is told where nothing stands out, and tried again every 50 iterations.
//
// After the warm-up one profile judges peers, so that a fault present from the
// start is found too (FromStart, two windows), or else is kept as the healthy
// state.
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
// A second slowdown while incidents are open stays untold until a profile says
// whether somebody new is slow. Ranks that two windows running show slow
// without an onset of their own (it hid behind an action) are told too.
//
// Incidents name devices and links; their ranks follow the placement. A new
// job epoch forgets series, baseline and healthy profile, not incidents.
package detect
