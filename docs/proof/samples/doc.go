// Package samples holds changes that a newcomer makes: a rank metric, a field of an action, a
// command to agents. Each is a text of additions to files of the product, as CONTRIBUTING.md
// describes them; the test lays it over the tree, without touching it, has generated code
// generated, and runs the tests that show that the new thing arrives at its end.
//
// It guarantees that a sample touches no more hand-written files than it says, and it must not
// become part of the product.
package samples
