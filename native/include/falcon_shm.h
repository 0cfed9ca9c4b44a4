/*
 * Shared memory between one training process (the hook writes) and the node
 * agent (reads, and writes the control block). One file per process:
 * falcon.<job>.<pid> in $FALCON_SHM_DIR (default /dev/shm) where that is its user's alone,
 * else in falcon-<uid> below it (folder.c), mode 0600; where a
 * process of another PID namespace has that name, falcon.<job>.<pid>-<its own namespace>.
 * A process that ends in order marks that in its control block and removes the file
 * (falcon_ended); one that is killed leaves the file as it is.
 *
 * Guarantees: fixed sizes and offsets (native/test prints every offsetof, a Go
 * test compares them with agent/ring's constants); the hook never waits for
 * the agent; sequence numbers let the reader count what it lost. Both sides
 * treat what the other wrote as hostile: copy, then check.
 *
 * Layout of the file, each part page-aligned:
 *   header | control | communicators | timings | ring 0 .. ring N-1
 */
#ifndef FALCON_SHM_H
#define FALCON_SHM_H

#include <stdint.h>

#define FALCON_SHM_MAGIC   0x3130004e434c4146ull /* "FALCN\0" "01", little endian */
#define FALCON_SHM_VERSION 6u      /* raised with every change of shape. 5: the header ends before proc_start */
#define FALCON_PAGE        4096u

#define FALCON_RINGS_MAX   8u     /* calling threads that get a ring of their own */
#define FALCON_RING_SLOTS  8192u  /* power of two; 512 KiB per ring, oldest overwritten */
#define FALCON_COMMS_MAX   256u
#define FALCON_TIMING_SLOTS 32768u /* power of two; 6 iterations of 5,000 calls. Older hooks have 8192: readers go by the header */
#define FALCON_ORDER_SLOTS 4u     /* an order lives until three newer ones came */
#define FALCON_ORDER_VALUES 1024u /* micro-batch counts, one per replica */
#define FALCON_MESH_BYTES  128u  /* of a mesh's text, with its NUL */
#define FALCON_RAISED_BYTES 128u /* of each text about an exception, with its NUL */
#define FALCON_NAME_BYTES  64u
#define FALCON_BOOT_BYTES  40u  /* of a boot id's text, with its NUL */
#define FALCON_COMM_NONE   0xffffffffu
#define FALCON_ENDED_MAGIC 0x32444e45434c4146ull /* "FALCEND2", little endian */
#define FALCON_ENDED_SUFFIX ".ended"
#define FALCON_ENDED_UNKNOWN (-1) /* an end in order, by a mark without the exit status */
#define FALCON_DRAIN_MS    5000u  /* after a profile window ends, its timings are written within this time */

/* Operations: the values of falcon.Op. */
enum falcon_op {
  FALCON_OP_NONE = 0, FALCON_OP_ALLREDUCE = 1, FALCON_OP_REDUCE = 2,
  FALCON_OP_REDUCESCATTER = 3, FALCON_OP_ALLGATHER = 4, FALCON_OP_BROADCAST = 5,
  FALCON_OP_ALLTOALL = 6, FALCON_OP_GATHER = 7, FALCON_OP_SCATTER = 8,
  FALCON_OP_SEND = 9, FALCON_OP_RECV = 10, FALCON_OP_GROUPSTART = 11,
  FALCON_OP_GROUPEND = 12, FALCON_OP_PUTSIGNAL = 13, FALCON_OP_SIGNAL = 14,
  FALCON_OP_WAITSIGNAL = 15
};

enum falcon_record_flags {
  FALCON_REC_GROUPED   = 1u << 0, /* inside ncclGroupStart/End */
  FALCON_REC_CAPTURING = 1u << 1, /* the stream was capturing a graph */
  FALCON_REC_FAILED    = 1u << 2, /* the real call returned an error */
  FALCON_REC_TIMED     = 1u << 3  /* events were recorded around it */
};

/* One call. 64 bytes. The writer zeroes seq, fills the rest, then stores seq
 * with release; the reader loads seq with acquire, copies, loads it again:
 * unequal or unexpected means overwritten. */
typedef struct falcon_record {
  uint64_t seq;      /* 1-based in this ring; slot = (seq-1) % slots */
  uint64_t enter;    /* ticks (header clock) when the caller entered; of a call that a pause held, when it went on */
  uint64_t exit;     /* ticks when the real call returned */
  uint64_t count;    /* elements */
  uint64_t stream;   /* opaque stream handle */
  uint64_t ordinal;  /* number of this call on its communicator, from 0 */
  uint32_t comm;     /* index into the communicator table, FALCON_COMM_NONE for group marks */
  int32_t  peer;     /* peer or root, -1 where there is none */
  uint8_t  op;       /* enum falcon_op */
  uint8_t  dtype;    /* ncclDataType_t */
  uint8_t  depth;    /* group depth at the call */
  uint8_t  flags;    /* enum falcon_record_flags */
  uint32_t step;     /* low 32 bits of the iteration begun by the adapter, 0xffffffff before */
} falcon_record;

enum falcon_clock { FALCON_CLOCK_MONO_NS = 0, FALCON_CLOCK_TSC = 1 };

/* Written once at creation, but for the calibration pair. */
typedef struct falcon_header {
  uint64_t magic;            /* stored last */
  uint32_t version;
  uint32_t header_bytes;     /* sizeof(falcon_header) */
  uint64_t file_bytes;
  uint32_t pid;
  uint32_t rings;            /* FALCON_RINGS_MAX */
  uint32_t ring_slots;
  uint32_t comms;
  uint32_t timing_slots;
  uint32_t order_slots;
  uint64_t control_offset, comms_offset, timings_offset, rings_offset;
  uint64_t ring_stride;      /* bytes from ring i to ring i+1: one page of falcon_ring + slots */
  int32_t  rank, world, local_rank; /* RANK, WORLD_SIZE, LOCAL_RANK; -1 when unset */
  uint32_t clock;            /* enum falcon_clock */
  uint64_t start_unix_ns;    /* CLOCK_REALTIME at creation */
  uint64_t start_mono_ns;    /* CLOCK_MONOTONIC at creation */
  uint64_t start_ticks;      /* ticks at creation */
  char     job[FALCON_NAME_BYTES];
  char     device[FALCON_NAME_BYTES]; /* FALCON_DEVICE ("n1.g0") when set */
  /* Calibration, refreshed by the side thread under calib_seq (odd = being written). */
  uint64_t calib_seq, calib_ticks, calib_mono_ns;
  /* Who made the file: proof for an agent that may see the process under another number.
   * All 0 where /proc could not be read. */
  uint64_t proc_start;       /* field 22 of /proc/self/stat: clock ticks since boot, by time_ns */
  uint64_t pid_ns, time_ns;  /* inodes of /proc/self/ns/pid (pid counts in it) and /proc/self/ns/time */
  char     boot[FALCON_BOOT_BYTES]; /* /proc/sys/kernel/random/boot_id */
  /* Where the memory was refused, the file is this header alone. */
  uint32_t refused;          /* enum falcon_refused */
  int32_t  refused_errno;
} falcon_header;

/* What the kernel did not let the hook do. */
enum falcon_refused { FALCON_REFUSED_NONE = 0, FALCON_REFUSED_SIZE = 1 /* ftruncate, fallocate or madvise */,
  FALCON_REFUSED_MAP = 2 /* mmap */, FALCON_REFUSED_THREAD = 3 /* the side thread */ };

/* Head of a ring; its slots start FALCON_PAGE bytes behind it. */
typedef struct falcon_ring {
  uint64_t head;      /* records written so far; release after each record */
  uint32_t tid;       /* thread that owns it, 0 = free */
  uint32_t reserved;
} falcon_ring;

enum falcon_comm_state { FALCON_COMM_FREE = 0, FALCON_COMM_LIVE = 1, FALCON_COMM_GONE = 2, FALCON_COMM_ABORTED = 3 };

/* The gate of a communicator: one word, so that "the cut was missed" is known
 * when it is written. Bits 0-39: calls let through
 * so far, which is the ordinal of the next one. Bits 40-62: the cut, a number
 * of calls modulo 2^23. Bit 63: the cut holds. The hook lets a call through by
 * compare-and-swap (count + 1); the agent writes a cut the same way, and only
 * one that is ahead of the count. An armed gate whose count has reached the cut
 * (modulo 2^23) traps the next call at group depth 0. A gate that is armed while
 * no pause order is in force is cleared by whoever meets it. */
#define FALCON_GATE_COUNT_MASK ((1ull << 40) - 1)
#define FALCON_GATE_CUT_SHIFT  40
#define FALCON_GATE_CUT_MASK   ((1ull << 23) - 1) /* after the shift */
#define FALCON_GATE_ARMED      (1ull << 63)
#define FALCON_GATE_COUNT(g)   ((g) & FALCON_GATE_COUNT_MASK)
#define FALCON_GATE_CUT(g)     (((g) >> FALCON_GATE_CUT_SHIFT) & FALCON_GATE_CUT_MASK)

/* One communicator. 192 bytes. seq: odd while being written. */
/* Traffic of a communicator that its records do not show, or not whole: nothing may
 * be concluded from the calls that are not there. */
enum falcon_traffic { FALCON_TRAFFIC_DEVICE = 1u << 0, /* kernels of the program communicate by themselves (ncclDevCommCreate) */
  FALCON_TRAFFIC_WINDOWS = 1u << 1,  /* memory is registered that peers reach directly (ncclCommWindowRegister) */
  FALCON_TRAFFIC_ONESIDED = 1u << 2  /* puts and signals: the peer makes no call for them */
};

/* NCCL's choice for an operation as its profiler interface says it: falcon.Algorithm, falcon.Protocol
 * and the number of channels. */
#define FALCON_CHOICES_MAX 8u
#define FALCON_CHOICE(algorithm, protocol, channels) ((uint32_t)(algorithm) | (uint32_t)(protocol) << 8 | (uint32_t)(channels) << 16)

typedef struct falcon_comm {
  uint64_t seq;
  uint64_t id;         /* FNV-1a 64 of the unique id's bytes; of (parent id, child ordinal, color) for splits */
  uint64_t handle;     /* pointer, for messages only: reused after destroy */
  uint64_t gate;       /* counted calls so far, and how many are allowed: see FALCON_GATE_* */
  uint32_t generation; /* of this slot */
  uint32_t state;      /* enum falcon_comm_state */
  int32_t  size, rank;
  int32_t  device;
  uint32_t traffic;    /* enum falcon_traffic; 0 also from older hooks */
  uint64_t parent;     /* id of the parent for splits, 0 otherwise */
  uint32_t choices[FALCON_CHOICES_MAX]; /* NCCL's for its largest calls, by operation: FALCON_CHOICE; 0 = not known */
  uint64_t reserved64[4];
  char     name[FALCON_NAME_BYTES]; /* config.commName, empty when not given */
} falcon_comm;

/* One call timed on the device in a profile window. 64 bytes; same seq rule as records. */
typedef struct falcon_timing {
  uint64_t seq;
  uint64_t ordinal;      /* on its communicator */
  uint64_t bytes;        /* payload of this rank */
  int64_t  start_ns;     /* device start since the window's base event */
  int64_t  duration_ns;  /* device end - device start */
  int64_t  queue_ns;     /* device start - host enter (through the base event's host time) */
  uint32_t comm;
  int32_t  peer;
  uint8_t  op, dtype, flags, reserved;
  uint32_t window;       /* low 32 bits of the profile request */
} falcon_timing;

/* The display of what the hook is asked for; a pause is ordered by the fields of its own. */
enum falcon_mode { FALCON_MODE_MONITOR = 0, FALCON_MODE_PROFILE = 1, FALCON_MODE_PAUSE = 2 };

enum falcon_order_kind { FALCON_ORDER_NONE = 0, FALCON_ORDER_MICROBATCHES = 1,
  FALCON_ORDER_PLACEMENT = 2, FALCON_ORDER_CHECKPOINT = 3, FALCON_ORDER_STOP = 4,
  FALCON_ORDER_REJOIN = 5 /* never voted on: it has a slot of its own, see `rejoin` */ };

/* One order in the mailbox. The agent makes seq odd, fills, makes it even and
 * larger; slot = id % FALCON_ORDER_SLOTS. */
typedef struct falcon_shm_order {
  uint64_t seq;
  uint64_t id;        /* grows over the job's life */
  uint64_t epoch;     /* job epoch */
  uint32_t kind;      /* enum falcon_order_kind */
  uint32_t n;         /* values used */
  int32_t  values[FALCON_ORDER_VALUES];
} falcon_shm_order;

/* How long a call may be held, whatever the agent writes: a later deadline is cut
 * down to so long after the order was first seen ($FALCON_PAUSE_MAX_MS lowers it). */
#define FALCON_PAUSE_MAX_MS 60000u

/* The state of the newest pause order in this process. Read pause_seen first:
 * the state goes with it, and is NONE while the fields are replaced. An order
 * that is over is never taken up again; another id while one is in force ends
 * the first (RELEASED) and clears all gates, those of the second too: so the
 * agent waits for the end of the first. ARMED and REACHED may alternate until QUIET. */
enum falcon_pause_state { FALCON_PAUSE_NONE = 0,
  FALCON_PAUSE_ARMED = 1,    /* taken up; calls before the cut still pass */
  FALCON_PAUSE_REACHED = 2,  /* all armed communicators (one at least) have reached their cut; the streams still run */
  FALCON_PAUSE_QUIET = 3,    /* and all streams that carried a call since ARMED, or on which a call is held, have drained: tests may run */
  FALCON_PAUSE_RELEASED = 4, /* the agent took the order back */
  FALCON_PAUSE_EXPIRED = 5,  /* the deadline passed: released by itself */
  FALCON_PAUSE_REFUSED = 6   /* see falcon_pause_reason; nothing is held any more */
};
enum falcon_pause_reason { FALCON_REASON_NONE = 0,
  FALCON_REASON_CAPTURE = 1, /* a call was seen to be captured into a graph, now or earlier: it may be replayed */
  FALCON_REASON_GROUP = 2,   /* a group reaches across the cut: no consistent boundary */
  FALCON_REASON_ABORTED = 3, /* a communicator was aborted, revoked or destroyed meanwhile */
  FALCON_REASON_NO_CUDA = 4, /* streams can't be asked whether they have drained */
  FALCON_REASON_LATE = 5,    /* the order was over when it was seen; tests: the deadline or the pause ended */
  FALCON_REASON_NO_WORKSPACE = 6, /* tests: nothing was reserved, or too little */
  FALCON_REASON_NO_LIBRARY = 7,   /* tests: libcublas or an NCCL function is missing */
  FALCON_REASON_NOT_QUIET = 8,    /* tests: the job is not held */
  FALCON_REASON_FAILED = 9,       /* tests: a call returned an error */
  FALCON_REASON_UNEVEN = 10,      /* an iteration before the boundary made other calls than those that were surveyed */
  FALCON_REASON_PROFILER = 12,    /* the profiler plug-in watches the process, and can't hold calls */
  FALCON_REASON_ENVIRONMENT = 11  /* tests: NCCL_COMM_ID or NCCL_COMM_BLOCKING=1 is set, so that communicators can't be made aside */
};

/* Active tests (FALCON 4.4), executed by a thread of the hook while the process
 * is QUIET, on streams and communicators of their own and in memory reserved at
 * the first communicator init ($FALCON_TEST_MB, default 0 = none, tests are
 * refused; falcon-agent run sets it). No test outlives its deadline or the pause: it is aborted. */
enum falcon_test_kind { FALCON_TEST_NONE = 0,
  FALCON_TEST_GEMM = 1, /* n x n x n in 16 bit numbers where the job sends 16 or 8 bit ones, else in 32 bit,
                         * `repeats` times, each timed by events */
  FALCON_TEST_ID = 2,   /* mint two unique ids for a LINK test */
  FALCON_TEST_LINK = 3  /* one exchange with one peer: each direction on a communicator and a stream
                         * of its own, both at once; `repeats` times `n` timed receives after one untimed */
};
enum falcon_test_status { FALCON_TEST_IDLE = 0, FALCON_TEST_RUNNING = 1, FALCON_TEST_DONE = 2,
  FALCON_TEST_REFUSED = 3, FALCON_TEST_FAILED = 4, FALCON_TEST_LATE = 5 };

/* agent -> hook. seq: odd while being written; id last but seq. */
typedef struct falcon_test {
  uint64_t seq;
  uint64_t id;        /* grows; 0 = none */
  uint64_t until_ns;  /* CLOCK_MONOTONIC */
  uint64_t bytes;     /* LINK: message size */
  uint32_t kind;      /* enum falcon_test_kind */
  uint32_t repeats;   /* 1 to 64 */
  uint32_t n;         /* GEMM: side of the matrices; LINK: messages of one repeat, 1 to 1024, 0 = 1 */
  int32_t  side;      /* LINK: 0 = sends on ids[0] and receives on ids[1], 1 = the other way */
  uint8_t  ids[2][128];
} falcon_test;

/* hook -> agent. seq: odd while being written. */
typedef struct falcon_test_result {
  uint64_t seq;
  uint64_t id;
  uint32_t kind, status, reason; /* enums above */
  uint32_t repeats;              /* timed */
  int64_t  median_ns, best_ns;   /* device time of one multiplication, or of one repeat's receives */
  int64_t  setup_ns;             /* host time before the first timed repeat */
  uint64_t bytes;                /* LINK: of one repeat; a hook that ignores `n` gives those of one message. GEMM: of one
                                  * matrix; a hook that multiplies in single precision only gives 0 */
  uint8_t  ids[2][128];          /* FALCON_TEST_ID */
} falcon_test_result;

/* What a process reports when it parks; negative: the last rejoin failed with it. */
enum falcon_park_status { FALCON_PARK_SUSPENDED = 0, /* suspended, or a peer died */
  FALCON_PARK_JOIN = 1 /* a replacement: holds nothing */ };

/* How long a rank in its optimizer is left alone, whatever the agent writes. */
#define FALCON_SUSPEND_MAX_MS 60000u

/* Coverage bits: what the hook saw. */
enum falcon_coverage { FALCON_COV_INIT = 1u << 0, FALCON_COV_COLL = 1u << 1, FALCON_COV_P2P = 1u << 2,
  FALCON_COV_GROUP = 1u << 3, FALCON_COV_ADAPTER = 1u << 4, FALCON_COV_UNHOOKED = 1u << 5, /* NCCL, or one of several, is called past the hook */
  FALCON_COV_UNKNOWN = 1u << 6, /* this NCCL has entry points that the hook does not know */
  FALCON_COV_WAITING = 1u << 7, /* waiting_since_ns is measured */
  FALCON_COV_PROFILER = 1u << 8, /* calls come from NCCL's profiler interface: those without device work, those that
                                 * failed as such, and one-sided ones are not seen, nor is the peer of a send or receive */
  FALCON_COV_STAYS = 1u << 9 /* the adapter has not declared FALCON_CAN_PARK: its process would not park */ };

/* What the adapter declares that this process can do (falcon_job_can). What is not declared it can't. */
enum falcon_can {
  FALCON_CAN_PARK = 1u << 0,       /* leaves training when it is suspended, parks, and rejoins in place */
  FALCON_CAN_SPLIT = 1u << 1,      /* takes other micro-batch counts */
  FALCON_CAN_PLACE = 1u << 2,      /* takes another rank over */
  FALCON_CAN_CHECKPOINT = 1u << 3, /* writes a checkpoint when it is ordered to, with which a restart begins */
  FALCON_CAN_NOTHING = 1u << 31    /* it has declared, this alone: nothing of the above */
};

/* How the calls that the hook sees reach it. What is called first is hooked. */
enum falcon_bound { FALCON_BOUND_NONE = 0, /* no call so far, or an older hook */
  FALCON_BOUND_NEEDED = 1,   /* of a libnccl that a part of the program is linked to */
  FALCON_BOUND_STATIC = 2,   /* of an NCCL within the calling library itself */
  FALCON_BOUND_DLSYM = 3,    /* of a libnccl that the program opens, by pointers from dlsym */
  FALCON_BOUND_BYPASSED = 4, /* NCCL is in the process, and what calls it passes by the hook */
  FALCON_BOUND_PROFILER = 5  /* of the profiler plug-in, which NCCL has loaded: no call can be held, and nothing tested */
};

/* Control block. The two halves lie on separate pages by writer. */
typedef struct falcon_control {
  /* agent -> hook */
  uint32_t mode;                /* enum falcon_mode */
  uint32_t profile_window;      /* id of the profile request */
  uint64_t profile_until_ns;    /* CLOCK_MONOTONIC deadline: the hook falls back to monitor by itself */
  uint64_t profile_comms[4];    /* bit i: time communicator slot i; all zero = all */
  uint64_t agent_alive_ns;      /* CLOCK_MONOTONIC of the agent's last look */
  uint32_t period;              /* inferred calls per iteration, 0 = unknown */
  uint32_t anchor;              /* FNV-1a 32 of the anchor call's class, for the record */
  uint64_t newest_order;        /* id of the newest order in the mailbox; stored last, release */
  /* A pause: the agent writes pause_until_ns and pause_boundary, then
   * pause_order, then the gates, then pause_armed, then adds 1 to pause_word and
   * wakes it and mode (futex; the side thread of an older kernel sleeps on mode
   * alone); to end it, pause_order = 0, and the word and the wakes again.
   * pause_armed shows that all gates are armed: before it nothing is
   * REACHED. Trapped threads wait on pause_word, never past the deadline. A new
   * test is announced by the same word. */
  uint64_t pause_order;         /* id of the pause that is wanted, 0 = none */
  uint64_t pause_until_ns;      /* CLOCK_MONOTONIC, at most FALCON_PAUSE_MAX_MS ahead */
  uint32_t pause_word;
  uint32_t reserved_agent;
  uint64_t pause_armed;         /* id of the order whose gates are all armed */
  uint64_t pause_boundary;      /* iteration that begins at the cut, plus 1; 0 = its start is not marked */
  /* A suspension: the agent writes suspend_until_ns, then suspend_generation, and
   * announces it as it does a pause. It holds for communicators of an older
   * generation (generation_now below): they are aborted once, and calls on them
   * and creations of new ones fail, until a rejoin of that or a later generation.
   * A rank whose step tag is -1 is left alone until it has another one, or until
   * suspend_until_ns. It is never taken back. While the process is parked the agent
   * writes the present time there as long as an engine is connected: the longest
   * wait counts from it. */
  uint64_t suspend_until_ns;    /* CLOCK_MONOTONIC; a time that is over = no wait */
  uint64_t suspend_generation;  /* 0 = none; only grows; stored last, release */
  uint64_t stop_generation;     /* not 0: a parked process is to end with success */
  uint64_t rejoin_id;           /* id of the order in `rejoin`; stored last, release, and announced */
  uint8_t  pad_agent[FALCON_PAGE - 144];
  /* hook -> agent */
  uint64_t heartbeat_ns;        /* CLOCK_MONOTONIC of the side thread's last beat (every 100 ms) */
  int64_t  iteration;           /* begin_iteration's argument, -1 before the first */
  int64_t  step_tag;            /* i in forward/backward, -1 in the optimizer, i+1 after it */
  uint64_t iteration_start_ns;  /* CLOCK_MONOTONIC at the last begin_iteration */
  uint64_t iterations_done;     /* marks written to the mark ring below */
  uint64_t committed_order;     /* id of the order that this rank has committed to */
  int64_t  committed_iteration; /* first iteration it holds for */
  int32_t  committed_status;    /* 0 = applied, else an adapter status */
  uint32_t micro_batches;       /* per iteration on this rank, 0 = the job does not declare it */
  uint64_t timing_head;         /* timings written so far */
  uint64_t timing_lost;         /* calls that should have been timed and were not */
  uint64_t records_lost;        /* calls from threads beyond FALCON_RINGS_MAX */
  uint32_t coverage;            /* enum falcon_coverage */
  uint32_t profile_done;        /* window id whose timings are all written */
  int32_t  tp, dp, pp;          /* layout the adapter declares, 0 = unknown */
  uint32_t describe_seq;        /* grows when the adapter describes the job */
  uint64_t paused_ns;           /* total time this rank was held by the hook */
  uint64_t pause_seen;          /* newest pause order taken up */
  uint64_t trapped_ns;          /* when its first call was trapped, 0 = none yet */
  uint64_t quiet_ns;            /* when QUIET was reached, 0 = not yet */
  uint64_t released_ns;         /* when it ended, 0 = not yet */
  uint32_t pause_state;         /* enum falcon_pause_state; stored after the four above */
  uint32_t pause_reason;        /* enum falcon_pause_reason */
  uint64_t test_workspace;      /* bytes reserved for tests, 0 = none */
  uint64_t resume_iteration;    /* of the newest checkpoint that an order asked for, as acknowledged; 0 = none */
  uint64_t generation;          /* FALCON_GENERATION: the launch that started the process, 0 = not by a launch */
  /* The newest placement that was carried out; place_seq: odd while being
   * written. place_order 0 = none: the rank is the header's. */
  uint64_t place_seq;
  uint64_t place_order;
  int64_t  place_iteration;     /* first iteration that the rank holds for */
  uint64_t place_step_ns[4];    /* pause, dump, swap, restore */
  uint64_t place_bytes;
  int32_t  place_rank;
  uint32_t reserved_place;
  /* Exact marks: mark k (iteration number, start, paused total) at slot k % 64. */
  struct { int64_t iteration; uint64_t start_ns; uint64_t paused_ns; uint64_t seq; } marks[64];
  /* Fail-stop. */
  uint64_t generation_now;      /* of the communicators in use: the launch's, then of the newest rejoin that was taken */
  uint64_t suspended_generation; /* newest suspension obeyed: every communicator of an older generation is aborted */
  uint64_t suspended_ns;        /* CLOCK_MONOTONIC when that was done */
  /* Its state while it is parked (falcon_job_park); park_seq: odd while
   * being written. The word is fresh when park_generation is the generation asked. */
  uint64_t park_seq;
  uint64_t park_generation;     /* newest suspension obeyed; of a replacement that has obeyed none: the launch's */
  int64_t  park_tag;            /* step tag when it parked */
  int64_t  park_steps[2];       /* steps of its shard that it holds, -1 = none */
  uint64_t park_sums[2];        /* the checksum of each */
  uint64_t park_ns;             /* when it parked */
  uint32_t park_on;             /* 1 while parked */
  int32_t  park_status;         /* enum falcon_park_status, or negative: the last rejoin failed with it */
  /* The newest rejoin and what became of it; rejoin_seq: odd while being written. */
  uint64_t rejoin_seq;
  uint64_t rejoin_order;        /* its generation, 0 = none yet */
  int64_t  rejoin_iteration;    /* trains again from it */
  uint64_t rejoin_step_ns[2];   /* groups, restore */
  uint64_t rejoin_bytes;        /* state that it received */
  int32_t  rejoin_status;       /* 0 = trains again */
  /* What the adapter declares of the job's state (falcon_job_state), 0 = unknown. */
  int32_t  zero_stage, zero_instances;
  int32_t  micro_min, micro_max, micro_multiple; /* micro-batches that this rank's replica may be given */
  uint64_t state_bytes, copy_bytes_s;
  int64_t  checkpoint_iteration; /* that a restart would begin with, plus 1; 0 = none */
  /* An end in order: exit() ran, or falcon_job_finish. Older hooks leave both 0. */
  uint64_t ended_ns;            /* CLOCK_MONOTONIC; 0 = no such end so far; stored last, release */
  int32_t  ended_status;        /* exit status, or FALCON_ENDED_UNKNOWN */
  uint32_t reserved_ended;
  uint64_t waiting_since_ns;    /* CLOCK_MONOTONIC; 0 = does not wait; unknown without FALCON_COV_WAITING */
  uint32_t bound;               /* enum falcon_bound; older hooks leave it and the next 0 */
  uint32_t nccl_version;        /* ncclGetVersion of the NCCL that is hooked, as 22809; 0 = not asked yet */
  uint64_t mesh_seq;            /* odd while mesh is being written; older hooks leave both 0 */
  char     mesh[FALCON_MESH_BYTES]; /* dimensions that the adapter declares (falcon_job_mesh); empty = tp, dp and pp above */
  uint32_t can;                 /* enum falcon_can; 0 = nothing was declared, as older hooks leave it */
  int32_t  versions;            /* how many steps of its state the process holds at a time; 0 = not known */
  /* The error that ends the program (falcon_job_raised): the first one. Older hooks leave it 0. */
  uint64_t raised_seq;          /* odd while it is being written */
  uint32_t raised_of_peers;     /* 1: communication has failed, as it does on all ranks when one ends */
  uint32_t reserved_raised;
  char     raised_kind[FALCON_RAISED_BYTES];  /* its type, as "ValueError" */
  char     raised_where[FALCON_RAISED_BYTES]; /* file and line, as "train.py:41" */
  char     raised_text[FALCON_RAISED_BYTES];  /* its message, cut */
  /* What NCCL's environment leaves it to choose, as it was after the first communicator was made, with
   * what nccl.conf added. Empty: not set, or longer than here. */
  char     nccl_algo[FALCON_NAME_BYTES];  /* NCCL_ALGO */
  char     nccl_proto[FALCON_NAME_BYTES]; /* NCCL_PROTO */
  uint32_t nccl_channels;       /* NCCL_MIN_NCHANNELS where NCCL_MAX_NCHANNELS is the same, else 0 */
  uint32_t nccl_env;            /* 1: the three above are written; stored last, release */
  /* Of a worker of an elastic agent, as torchrun: how often that will still start its workers again, by
   * TORCHELASTIC_MAX_RESTARTS and _RESTART_COUNT, and the process's parent. Both are 0 of any other process. */
  uint32_t elastic_restarts, elastic_parent;
  uint8_t  pad_hook[FALCON_PAGE - 256 - 2048 - 224 - 144 - 400 - 144];
  /* agent -> hook */
  falcon_shm_order orders[FALCON_ORDER_SLOTS];
  falcon_shm_order rejoin;      /* kind FALCON_ORDER_REJOIN; id = epoch = generation */
  falcon_test test;
  uint8_t  pad_test[FALCON_PAGE - 464];
  /* hook -> agent */
  falcon_test_result result;
  uint8_t  pad_result[FALCON_PAGE - 320];
} falcon_control;

/* What a process that ended in order leaves in the place of its file, under the
 * same name and FALCON_ENDED_SUFFIX, for an agent that is away at that moment:
 * written whole, then renamed. Without an agent that has looked within
 * FALCON_PARK_AGENT_S nothing is left. Agents remove it, once the process is gone. */
typedef struct falcon_ended {
  uint64_t magic;
  uint32_t bytes;               /* sizeof(falcon_ended) */
  uint32_t pid;
  uint64_t start_mono_ns, start_unix_ns; /* the header's */
  uint64_t ended_ns;            /* the control block's; here and below */
  int32_t  ended_status;
  int32_t  rank, world, local_rank;
  uint64_t generation, generation_now;
  int64_t  iteration, step_tag;
  int32_t  tp, dp, pp, place_rank;
  uint64_t place_order;
  int64_t  place_iteration;
  uint64_t committed_order;
  int64_t  committed_iteration;
  uint64_t resume_iteration;
  int32_t  committed_status;
  uint32_t reserved;
  uint64_t rejoined;            /* newest rejoin that succeeded, 0 = none */
  char     job[FALCON_NAME_BYTES], device[FALCON_NAME_BYTES];
  uint64_t proc_start, pid_ns;  /* the header's */
  uint64_t check;               /* FNV-1a 64 of all before */
} falcon_ended;

#endif
