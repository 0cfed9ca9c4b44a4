package falcon

import (
	"fmt"
	"slices"
)

// Algorithm is how NCCL carries a collective between ranks.
type Algorithm uint8

// NCCL's algorithms. The zero value is one that is not known.
const (
	AlgorithmUnknown Algorithm = iota
	AlgorithmTree
	AlgorithmRing
	AlgorithmCollnetDirect
	AlgorithmCollnetChain
	AlgorithmNVLS
	AlgorithmNVLSTree
	AlgorithmPAT
)

var algorithmNames = [...]string{
	"unknown", "tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat",
}

func (a Algorithm) String() string {
	return nameAt(algorithmNames[:], int(a))
}

// MarshalText writes the algorithm's name.
func (a Algorithm) MarshalText() ([]byte, error) {
	return []byte(a.String()), nil
}

// UnmarshalText reads a name; one that it does not know is unknown.
func (a *Algorithm) UnmarshalText(b []byte) error {
	*a = Algorithm(max(0, slices.Index(algorithmNames[:], string(b))))
	return nil
}

// Protocol is how NCCL puts data into messages.
type Protocol uint8

// NCCL's protocols.
const (
	ProtocolUnknown Protocol = iota
	ProtocolLL
	ProtocolLL128
	ProtocolSimple
)

var protocolNames = [...]string{"unknown", "ll", "ll128", "simple"}

func (p Protocol) String() string {
	return nameAt(protocolNames[:], int(p))
}

// MarshalText writes the protocol's name.
func (p Protocol) MarshalText() ([]byte, error) {
	return []byte(p.String()), nil
}

// UnmarshalText reads a name; one that it does not know is unknown.
func (p *Protocol) UnmarshalText(b []byte) error {
	*p = Protocol(max(0, slices.Index(protocolNames[:], string(b))))
	return nil
}

// ChoiceSource is how NCCL's choice is known, the weakest first.
type ChoiceSource uint8

// Sources of a choice.
const (
	ChoiceAssumed     ChoiceSource = iota // nothing shows it
	ChoiceDeclared                        // detect.validate_trees
	ChoiceEnvironment                     // NCCL_ALGO and its like, which leave NCCL no other
	ChoiceDebug                           // NCCL's own debug output
	ChoiceProfiler                        // NCCL's profiler interface
)

var choiceSources = [...]string{"assumed", "declared", "environment", "debug", "profiler"}

func (s ChoiceSource) String() string {
	return nameAt(choiceSources[:], int(s))
}

// MarshalText writes the source's name.
func (s ChoiceSource) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText reads a name; one that it does not know is assumed.
func (s *ChoiceSource) UnmarshalText(b []byte) error {
	*s = ChoiceSource(max(0, slices.Index(choiceSources[:], string(b))))
	return nil
}

// Choice is what NCCL has chosen for one collective on one communicator, and how that is
// known. Channels is 0 where their number is not.
type Choice struct {
	Algorithm Algorithm    `json:"algorithm"`
	Protocol  Protocol     `json:"protocol"`
	Channels  uint8        `json:"channels,omitempty"`
	Source    ChoiceSource `json:"source"`
}

// Known reports whether something shows the algorithm.
func (c Choice) Known() bool {
	return c.Algorithm != AlgorithmUnknown && c.Source != ChoiceAssumed
}

// Choices are those of one communicator, by operation.
type Choices [OpBroadcast + 1]Choice

// Of is the choice for an operation; the zero value where nothing is known.
func (c Choices) Of(op Op) Choice {
	if int(op) < len(c) {
		return c[op]
	}
	return Choice{}
}

// PathChoice is the choice by which the links of an operation are known.
type PathChoice struct {
	Op Op `json:"op"`
	Choice
}

// Text is the choice in a sentence.
func (p PathChoice) Text() string {
	text := p.Op.String() + " goes by " + p.Algorithm.String()
	if p.Protocol != ProtocolUnknown {
		text += ", protocol " + p.Protocol.String()
	}
	if p.Channels > 0 {
		text += fmt.Sprintf(", %d channels", p.Channels)
	}
	return text + choiceTexts[p.Source]
}

var choiceTexts = map[ChoiceSource]string{
	ChoiceAssumed:     ": assumed, since nothing shows NCCL's choice",
	ChoiceDeclared:    ": declared by detect.validate_trees",
	ChoiceEnvironment: ": set by NCCL's environment",
	ChoiceDebug:       ": said by NCCL's debug output",
	ChoiceProfiler:    ": said by NCCL's profiler interface",
}

func nameAt(names []string, i int) string {
	if i >= len(names) {
		i = 0
	}
	return names[i]
}
