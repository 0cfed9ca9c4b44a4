package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// replaceOrAppend puts v in the place of the one with its id, or behind the others. It
// reports whether it is new.
func replaceOrAppend[T any](list *[]T, v T, id func(T) string) bool {
	i := slices.IndexFunc(*list, func(x T) bool { return id(x) == id(v) })
	if i >= 0 {
		(*list)[i] = v
		return false
	}
	*list = append(*list, v)
	return true
}

// numberAfter is the next number to give out once an id is known.
func numberAfter(next int, prefix, id string) int {
	if n, err := strconv.Atoi(strings.TrimPrefix(id, prefix)); err == nil {
		return max(next, n+1)
	}
	return next
}

// keepNewest drops the oldest but for most.
func keepNewest[T any](list []T, most int) []T {
	return slices.Delete(list, 0, max(0, len(list)-most))
}

// shortHash identifies a value by its encoding.
func shortHash(v any) string {
	sum := sha256.Sum256(encode(v))
	return hex.EncodeToString(sum[:8])
}

// orElse is v where it is set to something positive.
func orElse[T cmp.Ordered](v, otherwise T) T {
	var zero T
	if v > zero {
		return v
	}
	return otherwise
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("engine: encode %T: %v", v, err))
	}
	return b
}
