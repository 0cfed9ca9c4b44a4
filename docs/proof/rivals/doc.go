// Package rivals is detection by the rules of others, to be measured beside Falcon's
// on the same work (make rivals). The rules are implementations of ours after their
// authors' words and code; none of it is copied.
//
// It guarantees: the same input, setting and seed give the same answer. It is for tests
// and tables only: nothing that ships imports it. It reads no file and no clock and
// starts no goroutine. It must not share a threshold or a model with the detector, and
// it must not be tuned on what judges it.
//
// # NVRx
//
// NVIDIA/nvidia-resiliency-ext, src/nvidia_resiliency_ext/straggler/reporting.py and
// docs/source/straggler_det/usage_guide.rst. Kernels of every rank are timed; for each
// report the score of a kernel is the reference over the rank's median, and that of a
// rank the mean over its kernels, weighted by the time spent in each. The reference is
// the least median of all ranks (relative) or of the rank's own reports (individual).
// Kernels that not all ranks ran, and NCCL's, count nothing. Sections of code have a
// score each. Below 0.75 (identify_stragglers) a rank is a straggler. A report comes
// every 300 s, as in the Lightning callback's example, whose thresholds are 0.7.
// Simplified: of a story's kernels the sums of an iteration's forward and backward passes
// are known, not single launches.
//
// # Megatron-LM's --log-straggler
//
// NVIDIA/Megatron-LM, megatron/core/README_STRAGGLER.md: each log interval prints the
// ranks with the least and the greatest estimated throughput, by events before and
// behind the forward pass. There is no threshold and no alarm. Straggler is how an
// operator would read the lines: the same rank is last by 10 % in two lines running.
// --log-interval is 100 by default.
//
// # Minder-like
//
// Deng et al., Minder, NSDI 2025 (arXiv 2411.01791): for one metric after the other, in
// an order of priority, samples of one second are scaled by the metric's range, windows
// of 8 samples are denoised by an LSTM-VAE per metric, each machine's Euclidean distances
// to all others are summed and normalised, and the machine with the greatest sum is
// named when it stays over a threshold for four minutes. Simplified: a straight line of
// least squares stands in for the LSTM-VAE, which is trained on ByteDance's records;
// normalised means robust standard deviations above the median, so that a threshold
// holds for few machines too; the paper gives no threshold, 3 is ours; the order of
// metrics is the paper's result, not learned; it looks at every sample instead of every
// eight minutes. In stories a sample comes once per iteration.
//
// # BEAST as FALCON's released program runs it
//
// wutianyuan1/ncclprobe, control_plane/slow_detection.py: the whole buffer goes through
// Rbeast every 5 s. Points over three standard deviations from the mean are dropped.
// Change points of the most probable number, with a probability over 0.8, more than 10
// points from the one before, count when the means on either side differ by more than
// 20 % of the greater (the paper says 10 %). The model is that of Zhao et al. 2019 and of
// Rbeast's defaults: up to 10 change points, a constant or a line per segment, normal
// noise of one variance, reversible-jump chains (3 × 8,000 samples, every fifth step).
// Simplified: single outliers are replaced before the chain instead of being a component
// of it, and the least segment is 3 points. A test compares the chain with the posterior
// by enumeration.
//
// # The paper's baselines
//
// Sliding window, BOCD, and BOCD with verification are those of package evaltest.
//
// # What they are given
//
// SeriesMethods read a job's iteration times: evaltest's jobs, classes of noise, real
// records, and levels in normal noise, which is what change-point models assume.
// RankMethods read ranks and machines: a Story is a job of jobtest in which a GPU, link
// or host becomes slow, or only the work changes. Each rival gets the input that it is
// made for, from the same iterations that Falcon's detector plays. A machine's metrics
// are congestion marks, the share of an iteration in which its hosts launch kernels, and
// that in which its GPUs compute. Falcon's detector is the production Machine; without
// counters it reads samples and profile windows only and its tests are refused.
//
// KernelCase, StreamCase and LevelSeries are each rival's own kind of data.
package rivals
