package recovery

// spareWait is whether a recovery waits for a spare.
type spareWait struct{ on bool }

// begin begins to wait; false = it did already.
func (s *spareWait) begin() bool {
	waited := s.on
	s.on = true
	return !waited
}

// end reports whether the recovery waited until now.
func (s *spareWait) end() bool {
	waited := s.on
	s.on = false
	return waited
}
