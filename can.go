package falcon

// Can is what a process, or every process of a job, has declared that it can do. What was not
// declared it can't: nothing is inferred from what a process asks, or does.
type Can struct {
	Declared bool `json:"declared,omitempty"` // it has said what it can do
	// leaves training when it is suspended, waits, and rejoins in place
	Park  bool `json:"park,omitempty"`
	Split bool `json:"split,omitempty"` // takes other micro-batch counts: S2
	Place bool `json:"place,omitempty"` // takes another rank over: S3
	// writes one when it is ordered to, with which a restart begins: S4
	Checkpoint bool `json:"checkpoint,omitempty"`
	Versions   int  `json:"versions,omitempty"` // steps of its state that it holds at a time; 0 = not known
}

// And is what both can do.
func (c Can) And(o Can) Can {
	return Can{
		Declared:   c.Declared && o.Declared,
		Park:       c.Park && o.Park,
		Split:      c.Split && o.Split,
		Place:      c.Place && o.Place,
		Checkpoint: c.Checkpoint && o.Checkpoint,
		Versions:   min(c.Versions, o.Versions),
	}
}
