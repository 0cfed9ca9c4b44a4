package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"regexp"
)

// size is how much code some files hold.
type size struct {
	files  int
	tokens int
	lines  int // that hold a token or a part of one
}

func (s *size) add(other size) {
	s.files += other.files
	s.tokens += other.tokens
	s.lines += other.lines
}

// perLine is how dense the code is.
func (s size) perLine() float64 {
	if s.lines == 0 {
		return 0
	}
	return float64(s.tokens) / float64(s.lines)
}

// generatedMark is the line by which Go tools know generated files.
var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func isGenerated(source []byte) bool { return generatedMark.Match(source) }

// countSource counts the code of one file.
func countSource(source []byte) size {
	counted := size{files: 1}
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0) // comments are passed over
	last := 0
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return counted
		}
		if kind == token.SEMICOLON && literal != ";" {
			continue // a line's end stands for it
		}
		counted.tokens++
		begin := file.Line(pos)
		end := begin + bytes.Count([]byte(literal), []byte("\n"))
		counted.lines += end - max(begin-1, last)
		last = end
	}
}
