// Package meshtest generates what the communicators of training jobs carry, from how
// frameworks communicate: Megatron-core's rank generator, layers and gradient buckets,
// DDP's buckets, FSDP2 and HSDP as torchtitan builds them. It guarantees that a job's
// calls follow from its layers and micro-batches alone. It must not know the rules by
// which meshes are inferred.
package meshtest
