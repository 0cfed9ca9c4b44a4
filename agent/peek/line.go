package peek

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lineBytesMost is how much of one line is kept, its end.
const lineBytesMost = 1024

// cleanLine makes one line of a log printable: what a terminal would show of it at the
// end, without colours. A carriage return restarts the line, as a progress bar does.
func cleanLine(raw []byte) string {
	raw = bytes.TrimRight(raw, "\r\n")
	if i := bytes.LastIndexByte(raw, '\r'); i >= 0 {
		raw = raw[i+1:]
	}
	cut := 0
	if len(raw) > 2*lineBytesMost { // what is left out of the rest is never cleaned
		cut = len(raw) - 2*lineBytesMost
		raw = raw[cut:]
	}
	s := maskSecrets(printable(string(raw)))
	if len(s) > lineBytesMost {
		cut += len(s) - lineBytesMost
		s = s[len(s)-lineBytesMost:]
		for len(s) > 0 && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
	}
	if cut > 0 {
		return fmt.Sprintf("… %d bytes left out … %s", cut, s)
	}
	return s
}

// Clean makes one line of any text printable, bounded and masked.
func Clean(line string) string { return cleanLine([]byte(line)) }

// printable drops escape sequences, controls and invisible characters; what is no UTF-8
// becomes U+FFFD, and a tab four spaces.
func printable(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		if n := escapeLength(s); n > 0 {
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch {
		case r == '\t':
			b.WriteString("    ")
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		case unicode.IsPrint(r) && !unicode.Is(unicode.M, r):
			b.WriteRune(r)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// escapeLength is the length of the escape sequence that s begins with, 0 for none. One
// that does not end takes the rest of the line.
func escapeLength(s string) int {
	if s[0] != 0x1b {
		return 0
	}
	if len(s) == 1 {
		return 1
	}
	switch s[1] {
	case '[': // CSI: parameters up to a final byte
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC: up to BEL or ST
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	return 2
}
