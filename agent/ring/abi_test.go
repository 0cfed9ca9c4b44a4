package ring

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// abi names every constant of this package as the C header does.
var abi = map[string]uint64{
	"FALCON_SHM_MAGIC": shmMagic, "FALCON_SHM_VERSION": shmVersion, "FALCON_PAGE": pageBytes,
	"FALCON_RINGS_MAX": ringsMax, "FALCON_RING_SLOTS": ringSlots, "FALCON_COMMS_MAX": commsMax,
	"FALCON_TIMING_SLOTS": timingSlots, "FALCON_ORDER_SLOTS": orderSlots, "FALCON_ORDER_VALUES": orderValues,
	"FALCON_NAME_BYTES": nameBytes, "FALCON_COMM_NONE": CommNone, "FALCON_DRAIN_MS": drainMs,
	"FALCON_OP_NONE": 0, "FALCON_OP_ALLREDUCE": 1, "FALCON_OP_REDUCE": 2, "FALCON_OP_REDUCESCATTER": 3,
	"FALCON_OP_ALLGATHER": 4, "FALCON_OP_BROADCAST": 5, "FALCON_OP_ALLTOALL": 6, "FALCON_OP_GATHER": 7,
	"FALCON_OP_SCATTER": 8, "FALCON_OP_SEND": 9, "FALCON_OP_RECV": 10, "FALCON_OP_GROUPSTART": 11,
	"FALCON_OP_GROUPEND": 12, "FALCON_OP_PUTSIGNAL": 13, "FALCON_OP_SIGNAL": 14, "FALCON_OP_WAITSIGNAL": 15,
	"FALCON_REC_GROUPED": FlagGrouped, "FALCON_REC_CAPTURING": FlagCapturing, "FALCON_REC_FAILED": FlagFailed, "FALCON_REC_TIMED": FlagTimed,
	"FALCON_CLOCK_MONO_NS": clockMono, "FALCON_CLOCK_TSC": clockTSC,
	"FALCON_COMM_FREE": uint64(CommFree), "FALCON_COMM_LIVE": uint64(CommLive), "FALCON_COMM_GONE": uint64(CommGone), "FALCON_COMM_ABORTED": uint64(CommAborted),
	"FALCON_MODE_MONITOR": modeMonitor, "FALCON_MODE_PROFILE": modeProfile, "FALCON_MODE_PAUSE": 2,
	"FALCON_PAUSE_MAX_MS": pauseMaxMs, "FALCON_GATE_COUNT_MASK": gateCountMask, "FALCON_GATE_CUT_SHIFT": gateCutShift, "FALCON_GATE_CUT_MASK": gateCutMask, "FALCON_GATE_ARMED": gateArmed,
	"FALCON_PAUSE_NONE": uint64(PauseNone), "FALCON_PAUSE_ARMED": uint64(PauseArmed), "FALCON_PAUSE_REACHED": uint64(PauseReached), "FALCON_PAUSE_QUIET": uint64(PauseQuiet),
	"FALCON_PAUSE_RELEASED": uint64(PauseReleased), "FALCON_PAUSE_EXPIRED": uint64(PauseExpired), "FALCON_PAUSE_REFUSED": uint64(PauseRefused),
	"FALCON_REASON_CAPTURE": 1, "FALCON_REASON_FAILED": reasonFailed,
	"FALCON_TEST_GEMM": uint64(TestGEMM), "FALCON_TEST_ID": uint64(TestMint), "FALCON_TEST_LINK": uint64(TestLink),
	"FALCON_TEST_IDLE": uint64(TestIdle), "FALCON_TEST_RUNNING": uint64(TestRunning), "FALCON_TEST_DONE": uint64(TestDone), "FALCON_TEST_REFUSED": uint64(TestRefused), "FALCON_TEST_FAILED": uint64(TestFailed), "FALCON_TEST_LATE": uint64(TestLate),
	"FALCON_ORDER_NONE": 0, "FALCON_ORDER_MICROBATCHES": orderMicroBatches, "FALCON_ORDER_PLACEMENT": orderPlacement, "FALCON_ORDER_CHECKPOINT": orderCheckpoint, "FALCON_ORDER_STOP": orderStop, "FALCON_ORDER_REJOIN": orderRejoin,
	"FALCON_PARK_SUSPENDED": uint64(ParkSuspended), "FALCON_PARK_JOIN": uint64(ParkJoin), "FALCON_SUSPEND_MAX_MS": suspendMaxMs,
	"FALCON_COV_INIT": CoverInit, "FALCON_COV_COLL": CoverColl, "FALCON_COV_P2P": CoverP2P, "FALCON_COV_GROUP": CoverGroup, "FALCON_COV_ADAPTER": CoverAdapter, "FALCON_COV_UNHOOKED": CoverUnhooked, "FALCON_COV_UNKNOWN": CoverUnknown, "FALCON_COV_WAITING": CoverWaiting, "FALCON_ENDED_MAGIC": endedMagic,

	"sizeof.falcon_record": recordBytes, "falcon_record.seq": recSeq, "falcon_record.enter": recEnter, "falcon_record.exit": recExit,
	"falcon_record.count": recCount, "falcon_record.stream": recStream, "falcon_record.ordinal": recOrdinal, "falcon_record.comm": recComm,
	"falcon_record.peer": recPeer, "falcon_record.op": recOp, "falcon_record.dtype": recDtype, "falcon_record.depth": recDepth,
	"falcon_record.flags": recFlags, "falcon_record.step": recStep,

	"sizeof.falcon_header": headerBytes, "falcon_header.magic": hdrMagic, "falcon_header.version": hdrVersion, "falcon_header.header_bytes": hdrHeaderBytes,
	"falcon_header.file_bytes": hdrFileBytes, "falcon_header.pid": hdrPID, "falcon_header.rings": hdrRings, "falcon_header.ring_slots": hdrRingSlots,
	"falcon_header.comms": hdrComms, "falcon_header.timing_slots": hdrTimingSlots, "falcon_header.order_slots": hdrOrderSlots,
	"falcon_header.control_offset": hdrControlOffset, "falcon_header.comms_offset": hdrCommsOffset, "falcon_header.timings_offset": hdrTimingsOffset,
	"falcon_header.rings_offset": hdrRingsOffset, "falcon_header.ring_stride": hdrRingStride, "falcon_header.rank": hdrRank, "falcon_header.world": hdrWorld,
	"falcon_header.local_rank": hdrLocalRank, "falcon_header.clock": hdrClock, "falcon_header.start_unix_ns": hdrStartUnix,
	"falcon_header.start_mono_ns": hdrStartMono, "falcon_header.start_ticks": hdrStartTicks, "falcon_header.job": hdrJob, "falcon_header.device": hdrDevice,
	"falcon_header.calib_seq": hdrCalibSeq, "falcon_header.calib_ticks": hdrCalibTicks, "falcon_header.calib_mono_ns": hdrCalibMono,

	"sizeof.falcon_ring": 16, "falcon_ring.head": rngHead, "falcon_ring.tid": rngTID,

	"sizeof.falcon_comm": commBytes, "falcon_comm.seq": comSeq, "falcon_comm.id": comID, "falcon_comm.handle": comHandle, "falcon_comm.gate": comGate,
	"falcon_comm.generation": comGeneration, "falcon_comm.state": comState, "falcon_comm.size": comSize, "falcon_comm.rank": comRank,
	"falcon_comm.device": comDevice, "falcon_comm.parent": comParent, "falcon_comm.name": comName,

	"sizeof.falcon_timing": timingBytes, "falcon_timing.seq": timSeq, "falcon_timing.ordinal": timOrdinal, "falcon_timing.bytes": timBytes,
	"falcon_timing.start_ns": timStart, "falcon_timing.duration_ns": timDuration, "falcon_timing.queue_ns": timQueue, "falcon_timing.comm": timComm,
	"falcon_timing.peer": timPeer, "falcon_timing.op": timOp, "falcon_timing.dtype": timDtype, "falcon_timing.flags": timFlags, "falcon_timing.window": timWindow,

	"sizeof.falcon_shm_order": orderBytes, "falcon_shm_order.seq": ordSeq, "falcon_shm_order.id": ordID, "falcon_shm_order.epoch": ordEpoch,
	"falcon_shm_order.kind": ordKind, "falcon_shm_order.n": ordN, "falcon_shm_order.values": ordValues,

	"sizeof.falcon_control": controlBytes, "falcon_control.mode": ctlMode, "falcon_control.profile_window": ctlProfileWindow,
	"falcon_control.profile_until_ns": ctlProfileUntil, "falcon_control.profile_comms": ctlProfileComms, "falcon_control.agent_alive_ns": ctlAgentAlive,
	"falcon_control.period": ctlPeriod, "falcon_control.anchor": ctlAnchor, "falcon_control.newest_order": ctlNewestOrder,
	"falcon_control.heartbeat_ns": ctlHeartbeat, "falcon_control.iteration": ctlIteration, "falcon_control.step_tag": ctlStepTag,
	"falcon_control.iteration_start_ns": ctlIterationStart, "falcon_control.iterations_done": ctlIterationsDone,
	"falcon_control.committed_order": ctlCommittedOrder, "falcon_control.committed_iteration": ctlCommittedIter,
	"falcon_control.committed_status": ctlCommittedStat, "falcon_control.micro_batches": ctlMicroBatches, "falcon_control.timing_head": ctlTimingHead,
	"falcon_control.timing_lost": ctlTimingLost, "falcon_control.records_lost": ctlRecordsLost, "falcon_control.coverage": ctlCoverage,
	"falcon_control.profile_done": ctlProfileDone, "falcon_control.tp": ctlTP, "falcon_control.dp": ctlDP, "falcon_control.pp": ctlPP,
	"falcon_control.describe_seq": ctlDescribeSeq, "falcon_control.paused_ns": ctlPaused, "falcon_control.marks": ctlMarks, "falcon_control.orders": ctlOrders,
	"falcon_control.pause_order": ctlPauseOrder, "falcon_control.pause_until_ns": ctlPauseUntil, "falcon_control.pause_word": ctlPauseWord, "falcon_control.pause_armed": ctlPauseArmed, "falcon_control.pause_boundary": ctlPauseBoundary, "falcon_control.pause_seen": ctlPauseSeen, "falcon_control.trapped_ns": ctlTrapped, "falcon_control.quiet_ns": ctlQuiet, "falcon_control.released_ns": ctlReleased, "falcon_control.pause_state": ctlPauseState, "falcon_control.pause_reason": ctlPauseReason, "falcon_control.test_workspace": ctlTestWorkspace,
	"falcon_control.resume_iteration": ctlResumeIter, "falcon_control.generation": ctlGeneration, "falcon_control.place_seq": ctlPlaceSeq, "falcon_control.place_order": ctlPlaceOrder,
	"falcon_control.place_iteration": ctlPlaceIter, "falcon_control.place_step_ns": ctlPlaceSteps, "falcon_control.place_bytes": ctlPlaceBytes, "falcon_control.place_rank": ctlPlaceRank,
	"falcon_control.suspend_until_ns": ctlSuspendUntil, "falcon_control.suspend_generation": ctlSuspendGeneration, "falcon_control.stop_generation": ctlStopGeneration, "falcon_control.rejoin_id": ctlRejoinID,
	"falcon_control.generation_now": ctlGenerationNow, "falcon_control.suspended_generation": ctlSuspendedGen, "falcon_control.suspended_ns": ctlSuspendedNs, "falcon_control.park_seq": ctlParkSeq,
	"falcon_control.park_generation": ctlParkGeneration, "falcon_control.park_tag": ctlParkTag, "falcon_control.park_steps": ctlParkSteps, "falcon_control.park_sums": ctlParkSums,
	"falcon_control.park_ns": ctlParkNs, "falcon_control.park_on": ctlParkOn, "falcon_control.park_status": ctlParkStatus, "falcon_control.rejoin_seq": ctlRejoinSeq,
	"falcon_control.rejoin_order": ctlRejoinOrder, "falcon_control.rejoin_iteration": ctlRejoinIter, "falcon_control.rejoin_step_ns": ctlRejoinSteps, "falcon_control.rejoin_bytes": ctlRejoinBytes,
	"falcon_control.rejoin_status": ctlRejoinStatus, "falcon_control.zero_stage": ctlZeroStage, "falcon_control.zero_instances": ctlZeroInstances, "falcon_control.micro_min": ctlMicroMin,
	"falcon_control.micro_max": ctlMicroMax, "falcon_control.micro_multiple": ctlMicroMultiple, "falcon_control.state_bytes": ctlStateBytes, "falcon_control.copy_bytes_s": ctlCopyBytes,
	"falcon_control.checkpoint_iteration": ctlCheckpointIter, "falcon_control.rejoin": ctlRejoin,
	"falcon_control.ended_ns": ctlEnded, "falcon_control.ended_status": ctlEndedStatus, "falcon_control.waiting_since_ns": ctlWaitingSince,
	"sizeof.falcon_ended": endedBytes, "falcon_ended.magic": endMagic, "falcon_ended.bytes": endBytes, "falcon_ended.pid": endPID, "falcon_ended.start_mono_ns": endStartMono, "falcon_ended.start_unix_ns": endStartUnix, "falcon_ended.ended_ns": endAt, "falcon_ended.ended_status": endStatus, "falcon_ended.rank": endRank, "falcon_ended.world": endWorld, "falcon_ended.local_rank": endLocalRank, "falcon_ended.generation": endGen, "falcon_ended.generation_now": endGenNow, "falcon_ended.iteration": endIter, "falcon_ended.step_tag": endTag, "falcon_ended.tp": endTP, "falcon_ended.dp": endDP, "falcon_ended.pp": endPP, "falcon_ended.place_rank": endPlaceRank, "falcon_ended.place_order": endPlace, "falcon_ended.place_iteration": endPlaceIter, "falcon_ended.committed_order": endCommitted, "falcon_ended.committed_iteration": endCommitIter, "falcon_ended.resume_iteration": endResume, "falcon_ended.committed_status": endCommitStat, "falcon_ended.rejoined": endRejoined, "falcon_ended.job": endJob, "falcon_ended.device": endDevice, "falcon_ended.check": endCheck,
	"falcon_control.test": ctlTest, "falcon_control.result": ctlResult,
	"sizeof.falcon_test": testBytes, "falcon_test.seq": tstSeq, "falcon_test.id": tstID, "falcon_test.until_ns": tstUntilNs, "falcon_test.bytes": tstBytes, "falcon_test.kind": tstKind, "falcon_test.repeats": tstRepeats, "falcon_test.n": tstN, "falcon_test.side": tstSide, "falcon_test.ids": tstIDs,
	"sizeof.falcon_test_result": resultBytes, "falcon_test_result.seq": resSeq, "falcon_test_result.id": resID, "falcon_test_result.kind": resKind, "falcon_test_result.status": resStatus, "falcon_test_result.reason": resReason, "falcon_test_result.repeats": resRepeats, "falcon_test_result.median_ns": resMedianNs, "falcon_test_result.best_ns": resBestNs, "falcon_test_result.setup_ns": resSetupNs, "falcon_test_result.bytes": resBytes, "falcon_test_result.ids": resIDs,
	"falcon_mark.iteration": markIteration, "falcon_mark.start_ns": markStart, "falcon_mark.paused_ns": markPaused, "falcon_mark.seq": markSeq,
	"sizeof.falcon_mark": markBytes, "marks": marksMax,
}

func TestABI(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the ABI was not compared with the C header")
	}
	bin := filepath.Join(t.TempDir(), "abi_dump")
	build := exec.Command(gcc, "-I", "../../native/include", "../../native/hook/test/abi_dump.c", "-o", bin)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build abi_dump: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		c, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatalf("abi_dump said %q", line)
		}
		seen[key] = true
		if goValue, ok := abi[key]; !ok || goValue != c {
			t.Errorf("%s is %d in C, %d in Go (known: %v)", key, c, goValue, ok)
		}
	}
	for key := range abi {
		if !seen[key] {
			t.Errorf("%s is not printed by abi_dump", key)
		}
	}
}
