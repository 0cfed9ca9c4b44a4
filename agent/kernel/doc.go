// Package kernel finds in the kernel's messages what matters to a training process: errors
// of GPUs, of the bus and of the network, and processes that were killed.
//
// It guarantees that reading never waits and is bounded in time and bytes, and that a line
// of any content is decoded without harm. ParseRecord and Classify are pure. What it finds
// is evidence for a person: it must not be the only reason for which anything is
// fenced or ended.
package kernel
