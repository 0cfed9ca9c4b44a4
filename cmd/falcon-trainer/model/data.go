package model

import "math"

// Streams keep the random numbers of different purposes apart.
const (
	streamWeights uint64 = 1
	streamSamples uint64 = 2
)

// source yields random numbers addressed by index, so that nothing depends on
// the order in which ranks ask.
type source struct{ key uint64 }

func newSource(seed, stream, index uint64) source {
	return source{key: finalizeHash(finalizeHash(finalizeHash(seed)^stream) ^ index)}
}

// finalizeHash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func finalizeHash(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// nextNormal is roughly standard normal: the sum of four uniform 16-bit numbers,
// centred and scaled (Irwin–Hall), which is plenty for weights and inputs.
func (s source) nextNormal(i uint64) float32 {
	z := finalizeHash(s.key + i)
	sum := int32(z&0xffff) + int32(z>>16&0xffff) + int32(z>>32&0xffff) + int32(z>>48)
	const mean, deviation = 2 * 65535, 37837.2 // 65536·√(4/12)
	return float32(sum-mean) / deviation
}

func squareRoot(n int) float32 {
	return float32(math.Sqrt(float64(n)))
}

// Input writes the features of sample index into x.
func Input(seed, index uint64, x []float32) {
	src := newSource(seed, streamSamples, index)
	for j := range x {
		x[j] = src.nextNormal(uint64(j))
	}
}

// Target writes what the model should answer for sample index into y: the
// input plus a rectified neighbour, which no linear map can give.
func Target(seed, index uint64, y []float32) {
	src := newSource(seed, streamSamples, index)
	n := len(y)
	for j := range y {
		a := src.nextNormal(uint64((j + 1) % n))
		b := src.nextNormal(uint64((j + 3) % n))
		y[j] = src.nextNormal(uint64(j)) + 0.75*max(a, 0) - 0.5*b
	}
}
