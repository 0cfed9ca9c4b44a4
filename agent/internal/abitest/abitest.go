// Package abitest keeps the Go constants of the C headers in native/include equal
// to what the C compiler computes. Its test generates ring's and lab's abi_gen.go
// under -update, and fails when a committed one differs. It imports neither, so
// that it can make a file that is missing.
package abitest
