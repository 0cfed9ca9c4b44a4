// Package storetest holds clients of a rendezvous store for tests and
// measurements: one that a test drives request by request, and a crowd of
// thousands in one thread.
//
// It guarantees to speak PyTorch's protocol in both layouts, by its own numbers.
// It must not be imported by what is shipped.
package storetest
