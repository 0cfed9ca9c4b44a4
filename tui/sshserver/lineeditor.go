package sshserver

import (
	"io"
	"unicode/utf8"
)

// cookedMax bounds one line that is being typed.
const cookedMax = 1 << 10

// lineEditor turns what a raw terminal sends into lines, as the operator's own
// terminal would do without an SSH terminal: it echoes, and knows backspace,
// ctrl-U, and ctrl-C or ctrl-D to end. Escape sequences are dropped.
type lineEditor struct {
	from io.Reader
	echo io.Writer
	line []byte // being typed
	have []byte // whole lines, not yet read
	esc  int    // inside an escape sequence: 1 after ESC, 2 after its bracket
	end  bool

	ended func() // called once at ctrl-C or ctrl-D
}

// Read gives whole lines.
func (c *lineEditor) Read(p []byte) (int, error) {
	var buf [256]byte
	for len(c.have) == 0 {
		if c.end {
			return 0, io.EOF
		}
		n, err := c.from.Read(buf[:])
		for _, b := range buf[:n] {
			c.handleKey(b)
		}
		if err != nil && len(c.have) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.have)
	c.have = c.have[n:]
	return n, nil
}

func (c *lineEditor) handleKey(b byte) {
	switch {
	case c.end:
	case c.esc > 0:
		c.skipEscape(b)
	case b == 0x1b:
		c.esc = 1
	case b == '\r' || b == '\n':
		c.have = append(append(c.have, c.line...), '\n')
		c.line = c.line[:0]
		c.writeEcho("\n")
	case b == 0x7f || b == 0x08:
		c.eraseLast()
	case b == 0x15: // ctrl-U
		for len(c.line) > 0 {
			c.eraseLast()
		}
	case b == 0x03, b == 0x04 && len(c.line) == 0:
		c.end = true
		c.ended()
	case b >= ' ' && len(c.line) < cookedMax:
		c.line = append(c.line, b)
		c.writeEcho(string([]byte{b}))
	}
}

// skipEscape passes a sequence over: ESC, and with a bracket all until its letter.
func (c *lineEditor) skipEscape(b byte) {
	switch {
	case c.esc == 1 && (b == '[' || b == 'O'):
		c.esc = 2
	case c.esc == 2 && (b < 0x40 || b > 0x7e):
	default:
		c.esc = 0
	}
}

// eraseLast takes the last character back, whatever its bytes.
func (c *lineEditor) eraseLast() {
	if len(c.line) == 0 {
		return
	}
	_, size := utf8.DecodeLastRune(c.line)
	c.line = c.line[:len(c.line)-size]
	c.writeEcho("\b \b")
}

// a dead link shows in the stream
func (c *lineEditor) writeEcho(s string) {
	_, _ = io.WriteString(c.echo, s)
}
