package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/report"
)

const collectHelp = `Gather from a running job what an autopsy needs, into one archive that
falcon detect reads: the engine's picture of the job, its incidents, the newest
iterations, and from the agents where each rank stands in its calls, the last
lines that the ranks have printed, what the kernels have said, and the status of
NCCL's RAS where a rank's NCCL answers for it.

It changes nothing, and takes no lock: the job goes on. Agents mask what looks like
a secret, as far as it can be recognised; read the archive before you send it to
somebody. Nodes of ranks that the engine blames come first; --nodes is how many are
asked. An agent is asked once; one that does not answer is listed as missing.

It needs the role operator; that you asked is in the audit, for each node.`

// Bounds of one archive.
const (
	collectNodes   = 64
	collectLines   = 200
	collectColumns = 4096 // iterations of the series
	collectWait    = 2 * time.Second
	collectTries   = 60 // of a node, while others wait
	collectMost    = 256 << 20
)

func collectCommand() *cobra.Command {
	var target engineTarget
	nodes, lines := collectNodes, collectLines
	since := 2 * time.Hour
	var out string
	c := &cobra.Command{
		Use:     "collect",
		Short:   "Gather from a running job what falcon detect needs, into one archive",
		Long:    collectHelp,
		Example: "  falcon collect\n  falcon collect --context llama-70b --out incident.tar.gz && falcon detect incident.tar.gz",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if nodes < 0 || lines < 1 || lines > peekMost {
				return fmt.Errorf("%w: --nodes must not be negative, and --lines must be from 1 to %d",
					errUsage, peekMost)
			}
			if err := refuseExisting("--out", out); err != nil {
				return err
			}
			g := gathering{
				nodes:    nodes,
				lines:    int32(lines),
				since:    since,
				progress: c.ErrOrStderr(),
			}
			return g.run(c, &target, out)
		},
	}
	target.declareFlags(c)
	c.Flags().StringVar(&out, "out", "",
		"the archive's file (default falcon-JOB-TIME.tar.gz here); one that exists is not written over")
	c.Flags().IntVar(&nodes, "nodes", nodes, "how many nodes are asked at most, those of blamed ranks first")
	c.Flags().IntVar(&lines, "lines", lines, "last lines of each rank's output, at most 200")
	c.Flags().DurationVar(&since, "since", since, "what kernels have said since then")
	return c
}

// gathering is one archive that is being made.
type gathering struct {
	nodes    int
	lines    int32
	since    time.Duration
	progress io.Writer

	now     time.Time // the engine's
	root    string
	tar     *tar.Writer
	written int64
	missing []string // what could not be had, each with its reason
}

func (g *gathering) run(c *cobra.Command, t *engineTarget, out string) error {
	conn, err := t.dialTarget()
	if err != nil {
		return err
	}
	defer conn.Close()
	cl := falconv1.NewConsoleClient(conn)
	ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
	snap, err := cl.Snapshot(ctx, &falconv1.SnapshotRequest{
		Rank:    -1,
		Columns: collectColumns,
	})
	cancel()
	if err != nil {
		return refusal(err, t.engineAddress())
	}
	g.now = time.Unix(0, snap.GetAtUnixNs()).UTC()
	g.root = fmt.Sprintf("falcon-%s-%s",
		fileName(snap.GetJob().GetName()), g.now.Format("20060102T150405Z"))
	if out == "" {
		out = g.root + ".tar.gz"
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("can't write %s: %w", clean.String(out), err)
	}
	pack := gzip.NewWriter(file)
	g.tar = tar.NewWriter(pack)
	err = g.gather(c.Context(), cl, snap)
	err = errors.Join(err, g.tar.Close(), pack.Close(), file.Close())
	if err != nil {
		_ = os.Remove(out)
		return err
	}
	return g.say(c.OutOrStdout(), out)
}

func (g *gathering) say(w io.Writer, out string) error {
	for _, m := range g.missing {
		fmt.Fprintf(w, "missing  %s\n", m)
	}
	_, err := fmt.Fprintf(w, "wrote %s; falcon detect %s says what happened\n",
		clean.String(out), clean.String(out))
	return err
}

func (g *gathering) gather(
	ctx context.Context,
	cl falconv1.ConsoleClient,
	snap *falconv1.SnapshotReply,
) error {
	steps := []func() error{
		func() error { return g.engine(ctx, cl, snap) },
		func() error { return g.add("ranks.csv", ranksTable(snap)) },
		func() error { return g.add("iterations.csv", iterationsTable(snap.GetSeries())) },
		func() error { return g.agents(ctx, cl, snap) },
		func() error { return g.add("README.txt", g.readme(snap)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// engine adds what the engine shows, for people.
func (g *gathering) engine(
	ctx context.Context,
	cl falconv1.ConsoleClient,
	snap *falconv1.SnapshotReply,
) error {
	text, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(snap)
	if err != nil {
		return fmt.Errorf("writing the engine's picture: %w", err)
	}
	if err := g.add("engine.json", text); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := cl.Incidents(ctx, &falconv1.IncidentsRequest{})
	if err != nil {
		g.miss("the incidents", err)
		return nil
	}
	for _, in := range report.Of(all) {
		if err := g.add(path.Join("incidents", fileName(in.ID)+".md"), []byte(in.Markdown())); err != nil {
			return err
		}
	}
	return nil
}

// agents adds what each node gives, those of blamed ranks first.
func (g *gathering) agents(
	ctx context.Context,
	cl falconv1.ConsoleClient,
	snap *falconv1.SnapshotReply,
) error {
	names := nodesInOrder(snap)
	if len(names) > g.nodes {
		g.missing = append(g.missing, fmt.Sprintf("%d of %d nodes: --nodes is %d",
			len(names)-g.nodes, len(names), g.nodes))
		names = names[:g.nodes]
	}
	for i, name := range names {
		g.show(fmt.Sprintf("\rnode %d of %d ", i+1, len(names)))
		parts, err := g.node(ctx, cl, name)
		if err != nil {
			g.miss("node "+clean.String(name), err)
			continue
		}
		for k, p := range parts {
			if err := g.part(name, k, p); err != nil {
				return err
			}
		}
	}
	g.show("\r\x1b[K")
	return nil
}

// show says on a terminal how far it is.
func (g *gathering) show(text string) {
	file, ok := g.progress.(*os.File)
	if ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprint(file, text)
	}
}

// node asks one agent; while the engine has too many questions it waits.
func (g *gathering) node(
	ctx context.Context,
	cl falconv1.ConsoleClient,
	name string,
) ([]*falconv1.PeekPart, error) {
	for try := 0; ; try++ {
		asked, cancel := context.WithTimeout(ctx, callTimeout)
		r, err := cl.Peek(asked, &falconv1.PeekRequest{
			What:  "node",
			Node:  name,
			Lines: g.lines,
		})
		cancel()
		if err == nil {
			return r.GetParts(), nil
		}
		if status.Code(err) != codes.ResourceExhausted || try >= collectTries {
			return nil, err
		}
		select {
		case <-time.After(collectWait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// part adds one source of a node.
func (g *gathering) part(node string, number int, p *falconv1.PeekPart) error {
	lines := p.GetLines()
	if p.GetSource() == "kernel" {
		lines = g.recent(lines)
	}
	if len(lines) == 0 {
		// a kernel that was read and has said nothing is whole
		if p.GetNote() != "" && !(p.GetSource() == "kernel" && p.GetPath() != "") {
			g.missing = append(g.missing, fmt.Sprintf("%s of node %s: %s",
				clean.String(p.GetSource()), clean.String(node), clean.String(p.GetNote())))
		}
		return nil
	}
	name := fileName(p.GetSource())
	if rank := p.GetOwner() - 1; rank >= 0 {
		name = fmt.Sprintf("rank_%d.%s.%d", rank, name, number)
	}
	return g.add(path.Join("nodes", fileName(node), name+".txt"), []byte(strings.Join(lines, "\n")+"\n"))
}

// recent leaves out what a kernel said before the time that is asked for. A finding is a line with
// a time and one below it.
func (g *gathering) recent(lines []string) []string {
	for i := 0; i < len(lines); i += 2 {
		at, err := time.Parse(
			"2006-01-02 15:04:05Z",
			lines[i][:min(len(lines[i]), len("2006-01-02 15:04:05Z"))],
		)
		if err != nil || g.now.Sub(at) <= g.since {
			return lines[i:]
		}
	}
	return nil
}

func (g *gathering) miss(what string, err error) {
	g.missing = append(g.missing, what+": "+trimPackage(clean.String(status.Convert(err).Message())))
}

func (g *gathering) add(name string, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if g.written += int64(len(text)); g.written > collectMost {
		return fmt.Errorf("the archive would have more than %d MiB: ask for fewer nodes with --nodes",
			collectMost>>20)
	}
	head := &tar.Header{
		Name:     path.Join(g.root, name),
		Mode:     0o600,
		Size:     int64(len(text)),
		ModTime:  g.now,
		Typeflag: tar.TypeReg,
	}
	if err := g.tar.WriteHeader(head); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if _, err := g.tar.Write(text); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

func (g *gathering) readme(snap *falconv1.SnapshotReply) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Job %s, gathered at %s by falcon collect.\n\n",
		clean.String(snap.GetJob().GetName()), g.now.Format(time.RFC3339))
	b.WriteString(
		"engine.json      what the engine showed\nincidents/       its incidents\nranks.csv        each rank's newest times and its GPU's clock\n" +
			"iterations.csv   newest iterations of the job\nnodes/           what the agents gave: calls, kernels, NCCL's RAS, last lines of ranks\n",
	)
	for _, m := range g.missing {
		fmt.Fprintf(&b, "\nmissing: %s", m)
	}
	return []byte(b.String() + "\n")
}

// nodesInOrder are the nodes that agents of the job have, those of ranks that are blamed or not well first.
func nodesInOrder(snap *falconv1.SnapshotReply) []string {
	suspect := map[string]int{}
	for _, r := range snap.GetRanks() {
		suspect[string(falcon.Device(r.GetDevice()).Node())] += suspicion[r.GetHealth()]
	}
	for _, part := range snap.GetHang().GetCulprits() {
		for _, device := range part.GetDevices() {
			node := string(falcon.Device(device).Node())
			suspect[node] += suspicion[falconv1.RankHealth_RANK_HEALTH_CULPRIT]
		}
	}
	var out []string
	for _, n := range snap.GetNodes() {
		out = append(out, n.GetNode())
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return suspect[b] - suspect[a]
	})
	return out
}

// suspicion is how much a rank says for its node to be asked early.
var suspicion = map[falconv1.RankHealth]int{
	falconv1.RankHealth_RANK_HEALTH_SLOW:    1,
	falconv1.RankHealth_RANK_HEALTH_STALE:   1,
	falconv1.RankHealth_RANK_HEALTH_LOST:    100,
	falconv1.RankHealth_RANK_HEALTH_CULPRIT: 1000,
}

// ranksTable is each rank's newest values, as falcon detect compares members.
func ranksTable(snap *falconv1.SnapshotReply) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"rank", "device", "self_ms", "wait_ms", "sm_clock_mhz", "temperature_c"}}
	number := func(v float64) string {
		if !(v > 0) {
			return ""
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	for _, r := range snap.GetRanks() {
		rows = append(rows, []string{
			strconv.Itoa(int(r.GetRank())), r.GetDevice(), number(r.GetSelfMs()), number(r.GetWaitMs()),
			number(float64(r.GetSmClockMhz())), number(float64(r.GetTemperatureC())),
		})
	}
	if err := w.WriteAll(rows); err != nil || len(rows) == 1 {
		return nil
	}
	return b.Bytes()
}

// iterationsTable is the job's newest iterations.
func iterationsTable(s *falconv1.Series) []byte {
	var b strings.Builder
	for i, ms := range s.GetMs() {
		if ms > 0 {
			fmt.Fprintf(&b, "%d,%g\n", s.GetFirstIteration()+int64(i), ms)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return []byte("iteration,iteration_time_ms\n" + b.String())
}

// fileName keeps of a name what is safe in a file's.
func fileName(s string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, s)
	if len(out) > nameBytes {
		out = out[:nameBytes]
	}
	if out == "" {
		return "unnamed"
	}
	return out
}

const nameBytes = 64
