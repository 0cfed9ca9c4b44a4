// Package postmortem shows the answer of falcon detect on a terminal: what happened, who, the times
// of iterations, each piece of evidence with its line, and what to do next.
//
// It shows a document that it is given, whose strings it cleans, and decides nothing. It reads no
// files and asks no engine.
package postmortem

// Document is an answer as it is shown.
type Document struct {
	Kind     string // "hang", "slow", "failed", "healthy", "unknown"
	Summary  string
	Notes    []string // one line each: confidence, cost, since when
	Charts   []Chart
	Evidence []Evidence
	Next     []string
	Inputs   []Input
}

// Chart is one series; a column is the slowest of the points that it stands for.
type Chart struct {
	Name   string
	Unit   string // "" = only ratios are known
	Values []float64
	Onset  int // index of a value, -1 = none
}

// Evidence is one finding.
type Evidence struct {
	Against bool
	Text    string
	At      string // file and line
	Quote   string // the line itself
}

// Input is one file.
type Input struct {
	Path string
	Says string // what it is, or why it was not used
	Used bool
}
