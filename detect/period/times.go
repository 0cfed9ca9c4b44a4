package period

import (
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Thresholds for periods from times alone, which are noisier than classes.
const (
	timeAgreementLeast = 0.5 // least correlation of a period
	timeNearBest       = 0.9 // the smallest lag within this share of the best wins
)

// byTime finds the period of the logarithms of the times between calls, by
// their autocorrelation normalised by the overlap.
func (c Config) byTime(calls []Call) (Result, bool) {
	logs := logGaps(calls)
	if len(logs) < 4*minCalls {
		return Result{}, false
	}
	acf := autocorrelation(logs, longestLag(len(logs)))
	lag := firstPeak(acf)
	if lag == 0 {
		return Result{}, false
	}
	r := Result{Period: lag, Agreement: acf[lag], ByTime: true}
	first := calls[0].classOf()
	r.Anchor = Anchor{
		Class:     Class{Op: first.Op, Comm: first.Comm, Size: first.Size},
		PerPeriod: lag,
	}
	for i := gapPhase(logs, lag); i < len(calls); i += lag {
		r.Starts = append(r.Starts, i)
	}
	return r, true
}

// logGaps are the logarithms of the times to the next call.
func logGaps(calls []Call) []float64 {
	out := make([]float64, max(len(calls)-1, 0))
	for i := range out {
		out[i] = math.Log(float64(max(calls[i+1].TimeNs-calls[i].TimeNs, 1)))
	}
	return out
}

// autocorrelation at lags 0 … most, by FFT with zero padding.
func autocorrelation(x []float64, most int) []float64 {
	n := len(x)
	mean := 0.0
	for _, v := range x {
		mean += v / float64(n)
	}
	size := 1
	for size < 2*n {
		size *= 2
	}
	padded := make([]float64, size)
	for i, v := range x {
		padded[i] = v - mean
	}
	fft := fourier.NewFFT(size)
	spectrum := fft.Coefficients(nil, padded)
	for i, v := range spectrum {
		spectrum[i] = complex(real(v)*real(v)+imag(v)*imag(v), 0)
	}
	sums := fft.Sequence(nil, spectrum)
	acf := make([]float64, most+1)
	if variance := sums[0] / float64(n); variance > 1e-12*float64(size) {
		for k := range acf {
			acf[k] = sums[k] / float64(n-k) / variance
		}
	}
	return acf
}

// firstPeak is the smallest lag with a local maximum close to the best one, or 0.
func firstPeak(acf []float64) int {
	best := 0.0
	for k := 2; k < len(acf)-1; k++ {
		if isLocalPeak(acf, k) {
			best = max(best, acf[k])
		}
	}
	if best < timeAgreementLeast {
		return 0
	}
	for k := 2; k < len(acf)-1; k++ {
		if isLocalPeak(acf, k) && acf[k] >= min(DefaultAgreement, timeNearBest*best) {
			return k
		}
	}
	return 0
}

func isLocalPeak(acf []float64, k int) bool {
	return acf[k] >= acf[k-1] && acf[k] > acf[k+1]
}

// gapPhase is the call, 0 … lag−1, that follows the period's longest gap.
func gapPhase(logs []float64, lag int) int {
	best := math.Inf(-1)
	at := 0
	for p := range lag {
		sum, n := 0.0, 0
		for i := p; i < len(logs); i += lag {
			sum += logs[i]
			n++
		}
		if n > 0 && sum/float64(n) > best {
			best = sum / float64(n)
			at = p
		}
	}
	return (at + 1) % lag
}
