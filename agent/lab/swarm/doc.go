// Package swarm emulates many nodes of one job in one process, against a real engine: each has
// its own certificate and its own mTLS stream by the agents' own code (agent/ship), and sends what
// an agent sends of a healthy job, at its rates and sizes. It is for what an engine costs at
// scale.
//
// It guarantees that what is emulated is the nodes alone: frames, streams, certificates and
// acknowledgements are real. It counts every command that would have stopped or changed the job,
// and obeys none: a healthy job must get none. It must not be used against an engine that
// watches a real job.
package swarm
