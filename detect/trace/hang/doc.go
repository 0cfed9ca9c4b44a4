// Package hang finds who holds up a job that stands still.
//
// A rank that is behind in one communicator because it waits in another is a
// bystander. Who is behind and waits for nobody is the culprit: the package
// builds the graph of who waits for whom, through collectives and through sends
// and receives, and names where it ends. Several ends are several culprits.
//
// It guarantees: a rank is named only by what was recorded of it and of those
// who wait for it. Where that leaves a choice, as between two ranks that wait
// for each other, or between a rank that is gone and a record that is lost, the
// ranks are candidates and none is named. The same job gives the same answer,
// in time linear in its calls and the members of their groups.
//
// It knows no file and no format; detect/trace/judge feeds it dumps. Nothing
// here opens a file, reads a clock or starts a goroutine.
package hang
