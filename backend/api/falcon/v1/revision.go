package falconv1

// ProtocolRevision is this build's revision of the contract between agents and
// the engine; Hello and Welcome carry it. Peers of the revision before work
// together: what one does not know, the other does without.
//
//	1: Goodbye, Command.life_ms, RankBeat.calls and waiting_ms
//	2: Ask and Calls
//	3: Hello.rank_table and TableCommand.none
//	4: Peek, Peeked and KernelNotes
//	5: ProfileCommand.columns and RankProfile.columns
//	6: Standing, CommandResult.newer and Welcome.engine
//	7: AgentFrame.kept_ms, RankBeat.begun_ms and Gpu.gauges
const (
	ProtocolRevision = 7
	PeekRevision     = 4 // from which on agents answer Peek
	StandingRevision = 6 // from which on agents tell what orders they have had
	KeptRevision     = 7 // from which on agents tell how old a frame is, and an iteration
)

// ConsoleRevision is this build's revision of the contract between consoles and the engine;
// a Brief carries it. An engine that sends no Brief is older than 1.
//
//	1: SnapshotRequest.brief
const ConsoleRevision = 1
