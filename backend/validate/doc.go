// Package validate is one validation of one job as a pure machine: it holds
// the job at a consistent boundary, has the suspects tested, and releases the job
// (FALCON §4.4).
//
// It guarantees that nothing is held before every rank's counts agree; that a
// missed cut is taken back everywhere before the next attempt, of which there
// are at most AttemptsMost; that every way out of a pause (done, failed,
// cancelled, a deadline, an agent or a process lost) sends RESUME to all
// nodes; that a rank that can't be held at all (a captured graph, no CUDA) is not
// tried again; that a pass in which a direction was slow is run again in the same hold,
// twice at most, and the lesser time counts, because a busy host makes slow what
// a slow link makes slow each time; that an order lives no longer than LifeMost and a quarter of the job's
// collective timeout; and that what was measured before a failure is kept.
// What must survive a restart is in Ready.Persist before the command that it is
// about: a restarted engine hands it to Recover, which releases all nodes.
//
// Time is an argument, commands and answers are values; there is no I/O and no
// goroutine. Answers must be cleaned by the caller: ranks that do not live on
// the node that answers have no business here. It must not decide whether a
// validation is wanted or allowed.
package validate
