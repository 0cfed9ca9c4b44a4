/* Prints sizes and offsets of the lab's state file, one "name value" a line. */
#include <stddef.h>
#include <stdio.h>

#include "falcon_lab.h"

#define S(t) printf("sizeof." #t " %zu\n", sizeof(t));
#define O(t, f) printf(#t "." #f " %zu\n", offsetof(t, f));
#define C(c) printf(#c " %llu\n", (unsigned long long)(c));

int main(void) {
  C(FALCON_LAB_MAGIC)
  C(FALCON_LAB_VERSION)
  C(FALCON_LAB_NODES)
  C(FALCON_LAB_GPUS)
  C(FALCON_LAB_GPU_OFFSET)
  C(FALCON_LAB_LINK_OFFSET)
  C(FALCON_LAB_FILE_BYTES)
  O(falcon_lab_header, magic)
  O(falcon_lab_header, version)
  O(falcon_lab_header, nodes)
  O(falcon_lab_header, gpus_per_node)
  O(falcon_lab_header, unpaced)
  O(falcon_lab_header, peak_flops)
  O(falcon_lab_header, intra_bytes_per_s)
  O(falcon_lab_header, intra_latency_s)
  O(falcon_lab_header, inter_bytes_per_s)
  O(falcon_lab_header, inter_latency_s)
  S(falcon_lab_gpu)
  O(falcon_lab_gpu, clock)
  O(falcon_lab_gpu, host_share)
  O(falcon_lab_gpu, load)
  O(falcon_lab_gpu, max_sm_mhz)
  O(falcon_lab_gpu, sm_mhz)
  O(falcon_lab_gpu, temperature_c)
  O(falcon_lab_gpu, power_mw)
  O(falcon_lab_gpu, power_limit_mw)
  O(falcon_lab_gpu, reasons)
  O(falcon_lab_gpu, thermal_ns)
  O(falcon_lab_gpu, thermal_since_ns)
  S(falcon_lab_link)
  O(falcon_lab_link, bandwidth)
  O(falcon_lab_link, latency)
  return 0;
}
