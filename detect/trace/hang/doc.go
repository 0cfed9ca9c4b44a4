// Package hang finds the ranks that cause a hang.
//
// The package builds the wait-for graph of the ranks, with collectives, sends and
// receives as edges. A rank that is behind in one communicator because it waits in
// another is not a cause. The ranks at which the graph ends are the culprits.
//
// It guarantees: a rank is named only because of its own record and those of the
// ranks that wait for it. If the records are ambiguous, for example for ranks that
// wait for each other, or for a missing record of a rank that may be dead, the ranks
// are candidates and none is named. The result is deterministic, in time linear in
// the calls and the members of their groups.
//
// The package is independent of files and formats; detect/trace/judge converts dumps
// to its input. Nothing here opens a file, reads a clock or starts a goroutine.
package hang
