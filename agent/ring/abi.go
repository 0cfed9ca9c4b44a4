package ring

import "time"

// Sizes and offsets of native/include/falcon_shm.h. abi_test.go compares each
// of them with what the C compiler computes.
const (
	shmMagic    = 0x3130004e434c4146
	shmVersion  = 5
	pageBytes   = 4096
	ringsMax    = 8
	ringSlots   = 8192
	commsMax    = 256
	timingSlots = 8192
	orderSlots  = 4
	orderValues = 1024
	nameBytes   = 64
	marksMax    = 64
	drainMs     = 5000
	pauseMaxMs  = 60000

	suspendMaxMs = 60000

	recordBytes  = 64
	headerBytes  = 280
	commBytes    = 192
	timingBytes  = 64
	orderBytes   = 4128
	controlBytes = 36864
	testBytes    = 304
	resultBytes  = 320
	uniqueBytes  = 128
	endedBytes   = 296
	endedMagic   = 0x31444e45434c4146
	markBytes    = 32

	hdrMagic             = 0
	hdrVersion           = 8
	hdrHeaderBytes       = 12
	hdrFileBytes         = 16
	hdrPID               = 24
	hdrRings             = 28
	hdrRingSlots         = 32
	hdrComms             = 36
	hdrTimingSlots       = 40
	hdrOrderSlots        = 44
	hdrControlOffset     = 48
	hdrCommsOffset       = 56
	hdrTimingsOffset     = 64
	hdrRingsOffset       = 72
	hdrRingStride        = 80
	hdrRank              = 88
	hdrWorld             = 92
	hdrLocalRank         = 96
	hdrClock             = 100
	hdrStartUnix         = 104
	hdrStartMono         = 112
	hdrStartTicks        = 120
	hdrJob               = 128
	hdrDevice            = 192
	hdrCalibSeq          = 256
	hdrCalibTicks        = 264
	hdrCalibMono         = 272
	recSeq               = 0
	recEnter             = 8
	recExit              = 16
	recCount             = 24
	recStream            = 32
	recOrdinal           = 40
	recComm              = 48
	recPeer              = 52
	recOp                = 56
	recDtype             = 57
	recDepth             = 58
	recFlags             = 59
	recStep              = 60
	rngHead              = 0
	rngTID               = 8
	comSeq               = 0
	comID                = 8
	comHandle            = 16
	comGate              = 24
	comGeneration        = 32
	comState             = 36
	comSize              = 40
	comRank              = 44
	comDevice            = 48
	comParent            = 56
	comName              = 128
	timSeq               = 0
	timOrdinal           = 8
	timBytes             = 16
	timStart             = 24
	timDuration          = 32
	timQueue             = 40
	timComm              = 48
	timPeer              = 52
	timOp                = 56
	timDtype             = 57
	timFlags             = 58
	timWindow            = 60
	ordSeq               = 0
	ordID                = 8
	ordEpoch             = 16
	ordKind              = 24
	ordN                 = 28
	ordValues            = 32
	ctlMode              = 0
	ctlProfileWindow     = 4
	ctlProfileUntil      = 8
	ctlProfileComms      = 16
	ctlAgentAlive        = 48
	ctlPeriod            = 56
	ctlAnchor            = 60
	ctlNewestOrder       = 64
	ctlHeartbeat         = 4096
	ctlIteration         = 4104
	ctlStepTag           = 4112
	ctlIterationStart    = 4120
	ctlIterationsDone    = 4128
	ctlCommittedOrder    = 4136
	ctlCommittedIter     = 4144
	ctlCommittedStat     = 4152
	ctlMicroBatches      = 4156
	ctlTimingHead        = 4160
	ctlTimingLost        = 4168
	ctlRecordsLost       = 4176
	ctlCoverage          = 4184
	ctlProfileDone       = 4188
	ctlTP                = 4192
	ctlDP                = 4196
	ctlPP                = 4200
	ctlDescribeSeq       = 4204
	ctlPaused            = 4208
	ctlMarks             = 4352
	ctlOrders            = 8192
	ctlPauseOrder        = 72
	ctlPauseUntil        = 80
	ctlPauseWord         = 88
	ctlPauseArmed        = 96
	ctlPauseBoundary     = 104
	ctlPauseSeen         = 4216
	ctlTrapped           = 4224
	ctlQuiet             = 4232
	ctlReleased          = 4240
	ctlPauseState        = 4248
	ctlPauseReason       = 4252
	ctlTestWorkspace     = 4256
	ctlResumeIter        = 4264
	ctlGeneration        = 4272
	ctlPlaceSeq          = 4280
	ctlPlaceOrder        = 4288
	ctlPlaceIter         = 4296
	ctlPlaceSteps        = 4304
	ctlPlaceBytes        = 4336
	ctlPlaceRank         = 4344
	ctlTest              = 28832
	ctlResult            = 32768
	ctlSuspendUntil      = 112
	ctlSuspendGeneration = 120
	ctlStopGeneration    = 128
	ctlRejoinID          = 136
	ctlGenerationNow     = 6400
	ctlSuspendedGen      = 6408
	ctlSuspendedNs       = 6416
	ctlParkSeq           = 6424
	ctlParkGeneration    = 6432
	ctlParkTag           = 6440
	ctlParkSteps         = 6448
	ctlParkSums          = 6464
	ctlParkNs            = 6480
	ctlParkOn            = 6488
	ctlParkStatus        = 6492
	ctlRejoinSeq         = 6496
	ctlRejoinOrder       = 6504
	ctlRejoinIter        = 6512
	ctlRejoinSteps       = 6520
	ctlRejoinBytes       = 6536
	ctlRejoinStatus      = 6544
	ctlZeroStage         = 6548
	ctlZeroInstances     = 6552
	ctlMicroMin          = 6556
	ctlMicroMax          = 6560
	ctlMicroMultiple     = 6564
	ctlStateBytes        = 6568
	ctlCopyBytes         = 6576
	ctlCheckpointIter    = 6584
	ctlEnded             = 6592
	ctlEndedStatus       = 6600
	ctlWaitingSince      = 6608
	ctlRejoin            = 24704
	tstSeq               = 0
	tstID                = 8
	tstUntilNs           = 16
	tstBytes             = 24
	tstKind              = 32
	tstRepeats           = 36
	tstN                 = 40
	tstSide              = 44
	tstIDs               = 48
	resSeq               = 0
	resID                = 8
	resKind              = 16
	resStatus            = 20
	resReason            = 24
	resRepeats           = 28
	resMedianNs          = 32
	resBestNs            = 40
	resSetupNs           = 48
	resBytes             = 56
	resIDs               = 64

	endMagic      = 0
	endBytes      = 8
	endPID        = 12
	endStartMono  = 16
	endStartUnix  = 24
	endAt         = 32
	endStatus     = 40
	endRank       = 44
	endWorld      = 48
	endLocalRank  = 52
	endGen        = 56
	endGenNow     = 64
	endIter       = 72
	endTag        = 80
	endTP         = 88
	endDP         = 92
	endPP         = 96
	endPlaceRank  = 100
	endPlace      = 104
	endPlaceIter  = 112
	endCommitted  = 120
	endCommitIter = 128
	endResume     = 136
	endCommitStat = 144
	endRejoined   = 152
	endJob        = 160
	endDevice     = 224
	endCheck      = 288

	markIteration = 0
	markStart     = 8
	markPaused    = 16
	markSeq       = 24
)

// The gate of a communicator (falcon_shm.h, FALCON_GATE_*).
const (
	gateCountMask = 1<<40 - 1
	gateCutShift  = 40
	gateCutMask   = 1<<23 - 1
	gateArmed     = 1 << 63
)

const (
	modeMonitor = 0
	modeProfile = 1

	reasonFailed = 9

	clockMono = 0
	clockTSC  = 1

	orderMicroBatches = 1
	orderPlacement    = 2
	orderCheckpoint   = 3
	orderStop         = 4
	orderRejoin       = 5
)

// CommNone is the communicator slot of records that have none (group marks).
const CommNone = 0xffffffff

// DrainMax is how long after the end of a profile window its timings may come:
// so long the hook waits for calls that are still on the device.
const DrainMax = drainMs * time.Millisecond

// Flags of a Record or a Timing.
const (
	FlagGrouped   = 1 << 0 // inside ncclGroupStart/End
	FlagCapturing = 1 << 1 // the stream was capturing a graph (known only while profiling)
	FlagFailed    = 1 << 2 // the real call returned an error
	FlagTimed     = 1 << 3 // events were recorded around it
)

// Coverage bits: what the hook saw of NCCL.
const (
	CoverInit     = 1 << 0
	CoverColl     = 1 << 1
	CoverP2P      = 1 << 2
	CoverGroup    = 1 << 3
	CoverAdapter  = 1 << 4
	CoverUnhooked = 1 << 5 // NCCL is loaded and at least part of it passes by the hook
	CoverUnknown  = 1 << 6 // this NCCL has entry points that the hook does not know
	CoverWaiting  = 1 << 7 // the hook measures whether the process waits
)
