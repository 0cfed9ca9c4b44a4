package pickle

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescapeUnicode reads protocol 0's text: Latin-1 with \uXXXX and \UXXXXXXXX.
func unescapeUnicode(line string) string {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' && i+1 < len(line) {
			width := map[byte]int{'u': 4, 'U': 8}[line[i+1]]
			if width > 0 && i+2+width <= len(line) {
				n, err := strconv.ParseUint(line[i+2:i+2+width], 16, 32)
				if err == nil && n <= utf8.MaxRune {
					b.WriteRune(rune(n)) //nolint:gosec // a rune by the line above
					i += 1 + width
					continue
				}
			}
		}
		b.WriteRune(rune(line[i]))
	}
	return b.String()
}

// unescapeString reads protocol 0's str of Python 2, which is its repr.
func unescapeString(line string) (string, bool) {
	line = strings.TrimSuffix(line, "\r")
	if len(line) < 2 ||
		line[0] != line[len(line)-1] ||
		line[0] != '\'' && line[0] != '"' {
		return "", false
	}
	line = line[1 : len(line)-1]
	single := map[byte]byte{
		'n':  '\n',
		'r':  '\r',
		't':  '\t',
		'\\': '\\',
		'\'': '\'',
		'"':  '"',
		'a':  7,
		'b':  8,
		'f':  12,
		'v':  11,
		'0':  0,
	}
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' || i+1 == len(line) {
			b.WriteByte(line[i])
			continue
		}
		if line[i+1] == 'x' && i+4 <= len(line) {
			if n, err := strconv.ParseUint(line[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		if c, ok := single[line[i+1]]; ok {
			b.WriteByte(c)
			i++
			continue
		}
		b.WriteByte('\\')
	}
	return b.String(), true
}
