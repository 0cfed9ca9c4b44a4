/*
 * State file of the lab: what the emulated silicon is like right now. The lab
 * (agent/lab, Go) writes it, the stand-ins in native/lab map it read-only and
 * read a field with one relaxed atomic load each. All doubles are stored as
 * their 64 bits. Found by $FALCON_LAB_STATE; a process is on node
 * $FALCON_LAB_NODE (index from 0); CUDA and NVML device i is GPU i of that node.
 */
#ifndef FALCON_LAB_H
#define FALCON_LAB_H

#include <stdint.h>

#define FALCON_LAB_MAGIC   0x31304241434c4146ull /* "FALCAB01" */
#define FALCON_LAB_VERSION 1u
#define FALCON_LAB_NODES   64u
#define FALCON_LAB_GPUS    8u   /* per node */
#define FALCON_LAB_HEADER_BYTES 4096u

typedef struct falcon_lab_header {
  uint64_t magic;
  uint32_t version;
  uint32_t nodes;
  uint32_t gpus_per_node;
  uint32_t unpaced;            /* 1: no sleeps at all; same arithmetic, as fast as the host goes */
  double   peak_flops;         /* of one GPU at clock 1.0, FLOP/s, as modelled */
  double   intra_bytes_per_s;  /* between GPUs of one node */
  double   intra_latency_s;
  double   inter_bytes_per_s;  /* between nodes, at bandwidth factor 1.0 */
  double   inter_latency_s;
} falcon_lab_header;

/* One GPU; 256 bytes; GPU g of node n is entry n*FALCON_LAB_GPUS+g, from byte FALCON_LAB_HEADER_BYTES. */
typedef struct falcon_lab_gpu {
  double   clock;              /* pace as a share of nominal, 1.0 = healthy */
  double   host_share;         /* share of the CPU its host thread gets, 1.0 = all it asks for */
  double   load;               /* flops factor of the work itself: 2.0 = the job's own work doubled */
  uint32_t max_sm_mhz;
  uint32_t sm_mhz;             /* what NVML answers; the lab keeps it at clock x max for thermal faults */
  uint32_t temperature_c;
  uint32_t power_mw, power_limit_mw;
  uint32_t last_xid;
  uint64_t reasons;            /* NVML clocks-event reasons */
  uint64_t thermal_ns;         /* throttle counter up to thermal_since_ns */
  uint64_t thermal_since_ns;   /* CLOCK_MONOTONIC; 0 = not throttling. NVML answers thermal_ns + (now - since) */
  uint64_t power_brake_ns, power_cap_ns;
  uint64_t ecc_corrected, ecc_fatal, xid_count;
  uint64_t reserved[18];
} falcon_lab_gpu;

/* Link between nodes a < b: entry a*FALCON_LAB_NODES+b behind the GPUs; 32 bytes. */
typedef struct falcon_lab_link {
  double   bandwidth;          /* share of inter_bytes_per_s, 1.0 = healthy */
  double   latency;            /* factor on inter_latency_s, 1.0 = healthy */
  uint64_t reserved[2];
} falcon_lab_link;

#define FALCON_LAB_GPU_OFFSET  FALCON_LAB_HEADER_BYTES
#define FALCON_LAB_LINK_OFFSET (FALCON_LAB_GPU_OFFSET + FALCON_LAB_NODES * FALCON_LAB_GPUS * 256u)
#define FALCON_LAB_FILE_BYTES  (FALCON_LAB_LINK_OFFSET + FALCON_LAB_NODES * FALCON_LAB_NODES * 32u)

#endif
