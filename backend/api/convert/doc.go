// Package convert translates between the vocabulary (package falcon) and the
// messages of the contract (package falconv1), in both directions, in one place.
//
// It guarantees that every field with a counterpart on the other side is
// translated: its test walks all fields of all messages and fails for one that
// is not, unless it is listed there with the reason. Integers that the contract
// holds in 32 bits are clamped. Results share slices with their sources; maps
// are copied.
//
// It does not judge: it neither cleans text nor bounds numbers from other
// machines. Who receives a message does that, before or after. It is pure.
package convert

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// mapped translates a list; an empty one becomes nil.
func mapped[From, To any](in []From, translate func(From) To) []To {
	if len(in) == 0 {
		return nil
	}
	out := make([]To, len(in))
	for i, v := range in {
		out[i] = translate(v)
	}
	return out
}

// Strings is a list of names as the contract holds it.
func Strings[T ~string](in []T) []string {
	return mapped(in, func(v T) string { return string(v) })
}

// names is a list of names of one kind, never nil.
func names[T ~string](in []string) []T {
	out := make([]T, len(in))
	for i, v := range in {
		out[i] = T(v)
	}
	return out
}

// Ranks is a list of ranks as the contract holds it.
func Ranks(in []falcon.Rank) []int32 {
	return mapped(in, clamped[falcon.Rank])
}

// RanksFromProto is never nil.
func RanksFromProto(in []int32) []falcon.Rank {
	out := make([]falcon.Rank, len(in))
	for i, r := range in {
		out[i] = falcon.Rank(r)
	}
	return out
}

func widened(v int32) int { return int(v) }

// clamped is v, or the 32-bit number next to it.
func clamped[T ~int](v T) int32 {
	return int32(min(max(v, math.MinInt32), math.MaxInt32))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func copied[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}
