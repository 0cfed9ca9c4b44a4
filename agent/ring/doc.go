// Package ring reads the shared memory that libfalcon_hook.so keeps for each
// training process (native/include/falcon_shm.h), and writes the half of the
// control block that belongs to the agent.
//
// It guarantees that nothing a training process writes can make it panic or
// read outside of the mapping: the header is checked once against the size of
// the file, everything else is copied and then checked. A file that shrinks
// under the mapping turns into ErrCorrupt. It never makes the training process
// wait, and neither drains nor snapshots allocate once their buffers have grown.
//
// It starts no goroutines and takes no locks: a Process belongs to one
// goroutine at a time. It must not decide anything about a job, and must not
// remove a file of a live process.
package ring
