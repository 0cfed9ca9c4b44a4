package falcon

// Work says how one iteration of one rank differs from its usual ones, by the calls
// as the host made them. What is as usual is left zero.
type Work struct {
	WaitMs float64 // from the iteration's begin to its first call; known with step marks alone
	// the longest gap between two calls beyond what is usual there, but where the
	// host waits for the device
	PauseMs float64
	TailMs  float64 // from the last call to the iteration's end, beyond what is usual

	Calls, UsualCalls int   // of the iteration
	Bytes, UsualBytes int64 // payload of all its calls
	// Changed are the kinds of calls (operation, communicator, peer) that came more or less often
	// than usual, the largest changes first, ChangesMost at most; Kept is how many of those that an
	// iteration usually has more than once came as often as ever.
	Changed []CallChange
	Kept    int
}

// ChangesMost bounds Work.Changed.
const ChangesMost = 8

// CallChange is one kind of call that came more or less often than usual.
type CallChange struct {
	Op    Op
	Calls int
	Usual int // 0 = a kind that usual iterations do not have
}

// Reason says what of the job's own work makes it slow where that is not hardware.
type Reason string

// The reasons, by their names on the wire, in records and in exports.
const (
	ReasonLengths      Reason = "sequence_lengths"   // sequences of different length
	ReasonMicroBatches Reason = "micro_batches"      // more, or fewer, micro-batches in an iteration
	ReasonEvaluation   Reason = "evaluation"         // forward passes besides training
	ReasonCheckpoint   Reason = "checkpoint"         // state is saved behind the last call
	ReasonWarmUp       Reason = "warm_up"            // the first iterations
	ReasonData         Reason = "data_stall"         // hosts wait before the first call
	ReasonGarbage      Reason = "garbage_collection" // hosts stop inside iterations, now one, now another
)

// Reasons are all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonLengths, ReasonMicroBatches, ReasonEvaluation, ReasonCheckpoint, ReasonWarmUp,
		ReasonData, ReasonGarbage,
	}
}
