package logs

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon/detect/trace/column"
)

// cell is the parsed text of a table cell.
type cell struct {
	value   float64 // NaN if there is none
	unit    column.Unit
	date    bool
	bad     bool
	twofold bool // "1,234" is 1234 or 1.234
}

var (
	thousands = regexp.MustCompile(`^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$`)
	commaNum  = regexp.MustCompile(`^[-+]?\d+,\d+([eE][-+]?\d+)?$`)
	dotGroups = regexp.MustCompile(`^[-+]?\d{1,3}(\.\d{3})+,\d+$`)
	united    = regexp.MustCompile(`^([-+]?[\d.,]+(?:[eE][-+]?\d+)?)\s*(ns|us|µs|ms|s|sec|seconds|min)$`)
	scaled    = regexp.MustCompile(`^([-+]?\d+(?:\.\d+)?)([KMG])$`)
)

// readCell parses a number as programs and spreadsheets of any locale write it, a
// date, or a number with its unit. Empty, NaN, None and N/A are missing values.
// With decimalComma, a single comma is a decimal comma.
func readCell(text string, decimalComma bool) cell {
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "", "nan", "none", "null", "n/a", "na", "-", "?":
		return cell{value: math.NaN()}
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && !isHex(text) {
		if math.IsInf(v, 0) {
			return cell{value: math.NaN(), bad: true}
		}
		return cell{value: v}
	}
	if m := united.FindStringSubmatch(text); m != nil {
		c := readCell(m[1], decimalComma)
		c.unit, _ = column.ParseUnit(m[2])
		return c
	}
	if c, ok := readLocal(text, decimalComma); ok {
		return c
	}
	if t, ok := readDate(text); ok {
		return cell{value: t, date: true}
	}
	return cell{value: math.NaN(), bad: true}
}

func isHex(s string) bool { return strings.ContainsAny(s, "xX_") }

// readLocal parses numbers with thousands separators or a decimal comma.
func readLocal(text string, decimalComma bool) (cell, bool) {
	plain, twofold := "", false
	switch {
	case dotGroups.MatchString(text):
		plain = strings.Replace(strings.ReplaceAll(text, ".", ""), ",", ".", 1)
	case commaNum.MatchString(text) && (decimalComma || !thousands.MatchString(text)):
		plain = strings.Replace(text, ",", ".", 1)
	case thousands.MatchString(text):
		plain = strings.ReplaceAll(text, ",", "")
		twofold = strings.Count(text, ",") == 1 && !strings.Contains(text, ".")
	default:
		if m := scaled.FindStringSubmatch(text); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			return cell{value: v * map[string]float64{"K": 1e3, "M": 1e6, "G": 1e9}[m[2]]}, err == nil
		}
		return cell{}, false
	}
	v, err := strconv.ParseFloat(plain, 64)
	if err != nil || math.IsInf(v, 0) {
		return cell{}, false
	}
	return cell{value: v, twofold: twofold}, true
}

// layouts of dates in logs. Times without a zone count as UTC: only their
// differences are used.
var layouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02 15:04:05.999999999-07:00",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006/01/02 15:04:05.999999999",
	"01/02/2006 15:04:05.999999999",
	"02.01.2006 15:04:05.999999999",
}

// readDate parses a date into seconds since 1970.
func readDate(text string) (float64, bool) {
	const shortest, longest = 16, 40
	if len(text) < shortest ||
		len(text) > longest ||
		text[0] < '0' ||
		text[0] > '9' {
		return 0, false
	}
	text = strings.Replace(text, ",", ".", 1) // Python's logging writes 17,508 for milliseconds
	for _, layout := range layouts {
		t, err := time.Parse(layout, text)
		if err == nil && t.Year() > 1970 && t.Year() < 2200 {
			return float64(t.Unix()) + float64(t.Nanosecond())/1e9, true
		}
	}
	return 0, false
}
