// Package bars is which nodes and devices people keep from being used as spares: why, who says
// so, and until when.
//
// It guarantees that every bar has an owner, a reason and an end, and that what it holds is
// bounded. It takes time as an argument, starts no goroutine and does no I/O. It must not take
// anything away from a job: ranks on a barred node stay, and only what would be chosen next is
// restricted.
package bars
