// Package falconv1 is the generated protobuf contract of falcon.proto.
//
// It guarantees wire shapes only: field numbers are never reused. It must hold
// no logic; conversions to the vocabulary live with those who need them.
package falconv1
