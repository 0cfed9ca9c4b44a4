// Package lab is a training cluster without GPUs on one machine: it starts
// nodes (an agent and its ranks each, in a process group of their own), hands
// them emulated silicon through a shared state file, injects faults at given
// iterations and writes down what happened.
//
// Every node has network ports of its own too, as a sysfs tree whose counters
// follow the state of the node's links.
//
// It guarantees: real processes, real shared memory, real agents and real
// gRPC; only the pace of GPUs and links and the values of their counters are
// emulated, and the report lists that. Faults are applied between iterations.
// Close ends every process that the lab started and waits for its own
// goroutines; leftovers of a lab that was killed are cleaned up by the next
// one. It must not hold engine state: incidents, actions and validations are
// asked for through the engine's API.
package lab
