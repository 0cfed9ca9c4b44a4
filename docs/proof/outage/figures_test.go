package outage

import (
	"fmt"
	"io"
	"strings"

	"github.com/failslow/falcon"
)

// Baseline is what the vanilla way costs over loopback; seconds.
type Baseline struct {
	Devices      int
	Store, Table float64
	Sent         int64 // bytes of the table, broadcast
}

// Report writes the figures as Markdown, each tagged.
func Report(w io.Writer, head string, all []Outcome, base []Baseline, m Model) error {
	var b strings.Builder
	b.WriteString(head)
	recoveryTable(&b, all)
	sharesTable(&b, all, m)
	tableI(&b, all, base)
	fig10(&b, all, base)
	tableII(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func row(b *strings.Builder, cells ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func header(b *strings.Builder, title string, cells ...string) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	row(b, cells...)
	row(b, strings.Split(strings.TrimSuffix(strings.Repeat("---,", len(cells)), ","), ",")...)
}

func s(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func recoveryTable(b *strings.Builder, all []Outcome) {
	header(
		b,
		"One node lost: what ran here (seconds)",
		"Devices",
		"Runs measured, this one the median by T",
		"Detection (emulated heartbeats)",
		"Suspend (measured)",
		"Replace without starts (measured)",
		"Rank table (measured)",
		"Collect (measured)",
		"Groups (measured)",
		"Resume (measured)",
		"From certainty to training (measured)",
		"T: with detection (measured, on emulated heartbeats)",
		"Ratio of T to the first row",
	)
	for _, o := range all {
		p := func(name string) string { return s(o.Phases[name]) }
		row(
			b,
			fmt.Sprint(o.Devices),
			fmt.Sprint(max(1, o.Runs)),
			s(o.Detect),
			p(falcon.PhaseSuspend),
			p(falcon.PhaseReplace),
			p(falcon.PhaseTable),
			p(falcon.PhaseCollect),
			p(falcon.PhaseGroups),
			p(falcon.PhaseResume),
			s(o.Wall),
			s(o.Controlled()),
			fmt.Sprintf("%.2f", o.Controlled()/all[0].Controlled()),
		)
	}
	b.WriteString(
		"\nT is what Falcon answers for: from the loss until the job trains, without starts of containers and imports and without the transfer of state, which are the cluster's and follow below. The paper's whole restart has a ratio of 116/88 = 1.32 from 32 to 4,800 devices.\n",
	)
}

// paperIII is table III of the paper: devices to detection and restarting time
// in seconds.
var paperIII = map[int][2]int{32: {6, 88}, 960: {6, 92}, 4800: {7, 116}}

func sharesTable(b *strings.Builder, all []Outcome, m Model) {
	header(
		b,
		"With what is simulated (seconds), beside table III",
		"Devices",
		"Detection (emulated)",
		"Measured above",
		"Container and imports (simulated)",
		"State (simulated)",
		"Sum, detection left out",
		"Ratio to the first row",
		"Paper, detection (table III)",
		"Paper, restart (table III)",
	)
	for _, o := range all {
		sum := o.Total() - o.Detect
		paper := [2]string{"", ""}
		if p, known := paperIII[o.Devices]; known {
			paper = [2]string{fmt.Sprint(p[0]), fmt.Sprint(p[1])}
		}
		row(
			b,
			fmt.Sprint(o.Devices),
			s(o.Detect),
			s(o.Wall),
			s(o.Replace),
			s(o.Restore),
			s(sum),
			fmt.Sprintf("%.2f", sum/(all[0].Total()-all[0].Detect)),
			paper[0],
			paper[1],
		)
	}
	fmt.Fprintf(b, "\nAssumed, not measured: containers take %v s (median, σ %v), imports %v s (σ %v), the slowest of %d counts; %.0f GB of state per rank over ports of %.0f GB/s, one shard at a time. "+
		"The paper's own ratio of restarting times from 32 to 4,800 devices is 116/88 = 1.32.\n",
		m.Container.Median, m.Container.Sigma, m.Import.Median, m.Import.Sigma, perNode,
		float64(m.StateBytes)/1e9, m.LinkBytesS/1e9)
}

func tableI(b *strings.Builder, all []Outcome, base []Baseline) {
	header(
		b,
		"Rank table, beside table I (seconds)",
		"Devices",
		"Bytes",
		"Bytes that change for a node that stays",
		"Read and parse on one node (measured)",
		"Write with fsync on one node (measured)",
		"Collect and broadcast over loopback (measured)",
		"Bytes sent by it",
		"Paper, original (table I, straight lines between its points)",
		"Paper, shared file (table I)",
	)
	for i, o := range all {
		row(
			b,
			fmt.Sprint(o.Devices),
			fmt.Sprint(o.Table),
			fmt.Sprint(o.Sent),
			fmt.Sprintf("%.4f", o.Parse),
			fmt.Sprintf("%.4f", o.Write),
			s(base[i].Table),
			fmt.Sprint(base[i].Sent),
			inRange(paperTable, o.Devices),
			flat(paperTable, o.Devices, "< 0.5"),
		)
	}
	b.WriteString("\nReading and parsing includes waiting for a core that the emulated nodes share.\n")
}

// inRange is a figure of the paper, where it has one near.
func inRange(p []point, devices int) string {
	if float64(devices) < p[0].devices*0.9 || float64(devices) > p[len(p)-1].devices {
		return ""
	}
	return fmt.Sprintf("%.0f", between(p, float64(devices)))
}

func flat(p []point, devices int, text string) string {
	if inRange(p, devices) == "" {
		return ""
	}
	return text
}

func fig10(b *strings.Builder, all []Outcome, base []Baseline) {
	header(
		b,
		"Rendezvous store, beside fig. 10 (seconds)",
		"Devices",
		"All ranks met, at once (measured)",
		"One by one (measured)",
		"Paper, serialized (read off fig. 10)",
		"Paper, parallel (read off fig. 10)",
	)
	for i, o := range all {
		row(
			b,
			fmt.Sprint(o.Devices),
			s(o.Groups),
			s(base[i].Store),
			inRange(paperStore, o.Devices),
			flat(paperStore, o.Devices, "10"),
		)
	}
	b.WriteString(
		"\nOver loopback a connection costs microseconds: the paper's seconds come from its network and are not reproduced. Each rank is a client of its own.\n",
	)
}

func tableII(b *strings.Builder) {
	v := FitVanilla()
	header(
		b,
		"The vanilla restart, beside table II (seconds)",
		"Devices",
		"Detection (constant of PyTorch)",
		"Restart (simulated)",
		"Paper (table II)",
		"Error",
	)
	for i, p := range paperRestart {
		wrong := "fitted"
		if i == 2 {
			_, e := v.Prediction()
			wrong = fmt.Sprintf("%+.0f %%", 100*e)
		}
		row(
			b,
			fmt.Sprint(int(p.devices)),
			"1800",
			fmt.Sprintf("%.0f", v.Restart(int(p.devices))),
			fmt.Sprint(p.seconds),
			wrong,
		)
	}
	fmt.Fprintf(b, "\nThe serialized store (fig. 10) and the original table (table I) as the paper measured them, and the slowest of n starts, Pareto with α = %.2f and scale %.3g s: fitted on two points, the third is predicted. "+
		"α below 1 has no finite mean: it describes these points and must not be carried further.\n",
		v.Alpha, v.Scale)
}
