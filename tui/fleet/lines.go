package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// SummaryPeriod is between two lines that sum up in the stream.
const SummaryPeriod = 30 * time.Second

// Settled reports whether every engine has answered, or has failed to.
func Settled(jobs []*Job) bool {
	for _, j := range jobs {
		if j.State.Conn == feed.Connecting && j.State.Err == "" {
			return false
		}
	}
	return true
}

// Await waits until the jobs are settled, ctx ends or limit has passed, and returns them.
func (f *Fleet) Await(ctx context.Context, limit time.Duration) []*Job {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for jobs := f.Jobs(); ; jobs = f.Jobs() {
		if Settled(jobs) {
			return jobs
		}
		select {
		case <-ctx.Done():
			return jobs
		case <-timer.C:
			return jobs
		case <-f.changed:
		}
	}
}

// Line is a job in one line of a stream: its name comes first.
func (r *Row) Line(now time.Time) string {
	text := r.Name + ": " + r.Class.String()
	if r.Class == Away {
		return text + fmt.Sprintf(" for %s: %s",
			phrase.Lasting(now.Sub(r.State.Since)), r.State.Err)
	}
	if r.Class == Connecting {
		return text
	}
	if r.Slowdown >= 0.005 && r.Class != Stopped {
		text += " " + phrase.Percent(r.Slowdown)
	}
	text += fmt.Sprintf(", job %s, %s ranks, iteration %s",
		r.JobName(), phrase.Count(int64(r.World())),
		phrase.Iteration(r.State.Snap.GetJob().GetIteration()))
	if r.Lost > 0.05 {
		text += fmt.Sprintf(", %s GPU-hours lost", hours(r.Lost))
	}
	text += phrase.Prefixed("; ", r.What())
	for _, w := range r.Waits {
		text += "; " + w.Text()
	}
	return text + phrase.Prefixed("; ", r.Version())
}

// Summary is all jobs in one line.
func Summary(rows []Row) string {
	s := SumOf(rows)
	text := fmt.Sprintf("%d jobs, %s ranks", len(rows), phrase.Count(int64(s.Ranks)))
	for _, p := range s.Parts() {
		text += ", " + p.Text
	}
	if s.Waiting > 0 {
		text += fmt.Sprintf("; %d wait for a person", s.Waiting)
	}
	return text
}

// document is one job for programs.
type document struct {
	Name        string         `json:"name"`
	Address     string         `json:"address"`
	State       string         `json:"state"`
	Job         string         `json:"job,omitempty"`
	Ranks       int            `json:"ranks"`
	Iteration   int64          `json:"iteration"`
	Slowdown    float64        `json:"slowdown"`
	Lost        float64        `json:"lost_gpu_hours"`
	PerHour     float64        `json:"lost_gpu_hours_per_hour"`
	Open        int            `json:"open_incidents"`
	Incidents   []string       `json:"incidents,omitempty"` // at most four
	Waits       []waitDocument `json:"waits,omitempty"`
	NewsSeconds *float64       `json:"news_age_s"` // null = never
	Away        string         `json:"away,omitempty"`
	AwaySince   string         `json:"away_since,omitempty"`
	Revision    int            `json:"protocol"`
	Role        string         `json:"role,omitempty"`
}

type waitDocument struct {
	What    string  `json:"what"`
	Whom    string  `json:"whom,omitempty"` // empty = it acts by itself
	Seconds float64 `json:"acts_in_s,omitempty"`
}

// WriteJSON writes the rows as one JSON list.
func WriteJSON(out io.Writer, rows []Row) error {
	list := make([]document, len(rows))
	for i := range rows {
		list[i] = documentOf(&rows[i])
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, string(b))
	return err
}

func documentOf(r *Row) document {
	snap := r.State.Snap
	d := document{
		Name:      r.Name,
		Address:   r.Address,
		State:     r.Class.String(),
		Job:       r.JobName(),
		Ranks:     r.World(),
		Iteration: snap.GetJob().GetIteration(),
		Slowdown:  r.Slowdown,
		Lost:      r.Lost,
		PerHour:   r.PerHour,
		Open:      int(snap.GetBrief().GetOpen()),
		Revision:  r.Revision,
		Role:      snap.GetRole(),
	}
	for _, v := range snap.GetIncidents() {
		d.Incidents = append(d.Incidents, v.GetId())
	}
	for _, w := range r.Waits {
		d.Waits = append(d.Waits, waitDocument{w.What, w.Whom, math.Ceil(w.Left.Seconds())})
	}
	if r.News >= 0 {
		age := r.News.Seconds()
		d.NewsSeconds = &age
	}
	if r.Class == Away {
		d.Away = r.State.Err
		d.AwaySince = r.State.Since.UTC().Format(time.RFC3339)
	}
	return d
}

// Stream writes a line for every change of a job, each with the job's name, and a summary now
// and then, until ctx ends.
func (f *Fleet) Stream(ctx context.Context, out io.Writer) error {
	ticks := time.NewTicker(SummaryPeriod)
	defer ticks.Stop()
	w := &lineWriter{out: out, now: f.now}
	written := map[string]string{}
	for w.err == nil {
		rows := (&Table{}).Rows(f.Jobs(), f.now())
		for i := range rows {
			if sign := signOf(&rows[i]); written[rows[i].Name] != sign {
				written[rows[i].Name] = sign
				w.write(rows[i].Line(f.now()))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			w.write(Summary((&Table{}).Rows(f.Jobs(), f.now())))
		case <-f.changed:
		}
	}
	return w.err
}

// signOf changes when there is something new to say of a job.
func signOf(r *Row) string {
	sign := r.Class.String() + r.What() + r.Version()
	for _, w := range r.Waits {
		sign += w.What + w.Whom + w.Owner
	}
	return sign
}

type lineWriter struct {
	out io.Writer
	now func() time.Time
	err error
}

func (w *lineWriter) write(text string) {
	_, w.err = fmt.Fprintf(w.out, "%s  %s\n", w.now().UTC().Format("15:04:05Z"), text)
}
