// Package sheet compares a job's GPUs with what their data sheet promises, instead of with each other:
// so it sees what slows all of them alike from a job's first iteration on.
//
// It guarantees that only a model that it knows is judged by a data sheet, that a GPU that idles or
// whose readings fail is not counted, and that a finding lasts before it is one. It takes time as an
// argument, starts no goroutine and does no I/O. It must not name a culprit or lead to an action:
// what it finds may be meant, such as clocks that an administrator has set.
package sheet

import (
	"strings"
	"unicode"
)

// Sheet is one model's data sheet.
type Sheet struct {
	Model  string  // as the driver names it, without the vendor
	Half   float64 // TFLOP/s of dense 16-bit products
	Single float64 // TFLOP/s of 32-bit products outside tensor cores
}

// sheets are NVIDIA's, dense: without the factor 2 of sparsity. Of two entries that fit, the first counts.
var sheets = []Sheet{
	{"GB200", 2500, 80},
	{"B200", 2250, 75},
	{"GH200", 990, 67},
	{"H200", 989, 67},
	{"H100 PCIe", 756, 51},
	{"H100 NVL", 835, 60},
	{"H100", 989, 67},
	{"H800 PCIe", 756, 51},
	{"H800", 989, 67},
	{"H20", 148, 44},
	{"A100", 312, 19.5},
	{"A800", 312, 19.5},
	{"A40", 149.7, 37.4},
	{"A30", 165, 10.3},
	{"A10", 125, 31.2},
	{"L40S", 362, 91.6},
	{"L40", 181, 90.5},
	{"L4", 121, 30.3},
	{"V100-PCIE", 112, 14},
	{"V100", 125, 15.7},
	{"Tesla T4", 65, 8.1},
}

// Of finds the data sheet of what the driver calls a GPU. A name fits where it begins and ends with
// a whole word: an A100 is no A10.
func Of(model string) (Sheet, bool) {
	for _, s := range sheets {
		i := strings.Index(model, s.Model)
		if i >= 0 && edge(model[:i], true) && edge(model[i+len(s.Model):], false) {
			return s, true
		}
	}
	return Sheet{}, false
}

// edge reports whether a text beside a name ends, or begins, with something else than a letter or a digit.
func edge(text string, before bool) bool {
	for i, r := range text {
		if !before {
			return !word(r)
		}
		if i+len(string(r)) == len(text) {
			return !word(r)
		}
	}
	return true
}

func word(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// Peak is the data sheet's TFLOP/s for numbers of so many bits, 0 = not known.
func (s Sheet) Peak(bits int) float64 {
	if bits == 16 {
		return s.Half
	}
	return s.Single
}
