// Package rivals is detection as others do it.
package rivals
