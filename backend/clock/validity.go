package clock

import (
	"crypto/x509"
	"time"
)

// ValidityTime is the time by which the other side's certificate is judged. It is the
// wall clock's, unless that was set since this process began and our own certificate
// is valid by the time of before and not by the present one: then the present one is
// wrong, and a connection that is lost can be made again. Leaf may be nil.
func ValidityTime(leaf *x509.Certificate) func() time.Time {
	return func() time.Time { return validityTime(leaf, time.Now(), Now()) }
}

func validityTime(leaf *x509.Certificate, wall, steady time.Time) time.Time {
	if leaf == nil || wall.Sub(steady).Abs() < StepLeast {
		return wall
	}
	if !validAt(leaf, wall) && validAt(leaf, steady) {
		return steady
	}
	return wall
}

func validAt(leaf *x509.Certificate, at time.Time) bool {
	return !at.Before(leaf.NotBefore) && !at.After(leaf.NotAfter)
}
