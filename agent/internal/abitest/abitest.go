// Package abitest keeps the Go constants of the C headers in native/include equal
// to what the C compiler computes. Its test generates abi_gen.go of ring, lab and
// host under -update, and fails when a committed one differs. It imports none of
// them, so that it can make a file that is missing.
package abitest
