package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
)

const deviceHelp = `Tell what is known of a GPU, a node or a link: the incidents that named it, the newest test
that judged it, and whether it is barred from being a spare. Without a name all bars and
all GPUs, links and ports that incidents have named are listed. Times are UTC. --json writes
  {"devices":[{"name":"n1.g0","incidents":[{"id":"INC-0001","cause":"gpu_degradation",
   "onset":"…","end":"…"}],"tested":"…","bar":{"by":"dana","reason":"…","since":"…","until":"…"}}]}`

// deviceReport is what is known of one device or node.
type deviceReport struct {
	Name      string           `json:"name"`
	Incidents []deviceIncident `json:"incidents"` // newest first
	Tested    string           `json:"tested,omitempty"`
	Bar       *deviceBar       `json:"bar,omitempty"`
}

type deviceIncident struct {
	ID    string `json:"id"`
	Cause string `json:"cause"`
	Onset string `json:"onset"`
	End   string `json:"end,omitempty"` // empty while it lasts
}

type deviceBar struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
	Since  string `json:"since"`
	Until  string `json:"until"`
}

// devicesReport is the document of falcon device.
type devicesReport struct {
	Devices []deviceReport `json:"devices"`
}

func deviceCommand() *cobra.Command {
	var target engineTarget
	c := documentCommand(&cobra.Command{
		Use:     "device [NAME]",
		Short:   "Show a device's history: incidents that named it, tests, bars",
		Long:    deviceHelp,
		Example: "  falcon device\n  falcon device n1.g0",
		Args:    cobra.MaximumNArgs(1),
	}, func(c *cobra.Command, args []string) (devicesReport, error) {
		k, err := askForDevices(c, &target)
		if err != nil {
			return devicesReport{}, err
		}
		if len(args) == 1 {
			return devicesReport{Devices: []deviceReport{k.report(args[0])}}, nil
		}
		return devicesReport{Devices: k.all()}, nil
	}, writeDevices)
	target.declareFlags(c)
	return c
}

// knownDevices are the engine's answers that a device's report is made of.
type knownDevices struct {
	snap    *falconv1.SnapshotReply
	history *falconv1.HistoryReply
	tests   []*falconv1.Validation
}

func askForDevices(c *cobra.Command, t *engineTarget) (knownDevices, error) {
	return ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (k knownDevices, err error) {
		if k.snap, err = cl.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1}); err != nil {
			return k, err
		}
		if k.history, err = cl.History(ctx, &falconv1.HistoryRequest{Limit: 512}); err != nil {
			return k, err
		}
		r, err := cl.Incidents(ctx, &falconv1.IncidentsRequest{})
		k.tests = r.GetValidations()
		return k, err
	})
}

// all are the reports of what is barred and what was named, by name.
func (k knownDevices) all() []deviceReport {
	var names []string
	for _, b := range k.snap.GetBars() {
		names = append(names, b.GetName())
	}
	for _, x := range k.history.GetCulprits() {
		names = append(names, cmp.Or(x.GetDevice(), x.GetLink(), x.GetNic()))
	}
	slices.Sort(names)
	out := []deviceReport{}
	for _, n := range slices.Compact(names) {
		out = append(out, k.report(n))
	}
	return out
}

func (k knownDevices) report(name string) deviceReport {
	out := deviceReport{Name: clean.String(name), Incidents: []deviceIncident{}}
	add := func(id, cause string, onset, end int64, named []string) {
		about := slices.ContainsFunc(named, func(n string) bool {
			return n == name || string(falcon.Device(n).Node()) == name
		})
		if about &&
			!slices.ContainsFunc(out.Incidents, func(i deviceIncident) bool { return i.ID == id }) {
			out.Incidents = append(out.Incidents, deviceIncident{
				clean.String(id),
				clean.String(cause),
				stampUTC(onset),
				stampUTC(end),
			})
		}
	}
	for _, i := range k.snap.GetIncidents() {
		v := i.GetVerdict()
		add(
			i.GetId(),
			v.GetCause(),
			i.GetOnsetUnixNs(),
			i.GetEndUnixNs(),
			slices.Concat(v.GetDevices(), v.GetLinks(), v.GetNics()),
		)
	}
	for _, i := range k.history.GetPast() {
		add(
			i.GetIncident(),
			i.GetCause(),
			i.GetOnsetUnixNs(),
			i.GetEndUnixNs(),
			slices.Concat(i.GetDevices(), i.GetLinks(), i.GetNics()),
		)
	}
	for _, v := range k.tests {
		if text := phrase.TestedIn(v, name); text != "" {
			out.Tested = clean.String(text)
			break
		}
	}
	for _, b := range k.snap.GetBars() {
		n := b.GetName()
		if n == name || n == string(falcon.Device(name).Node()) {
			out.Bar = &deviceBar{
				clean.String(b.GetBy()),
				clean.String(b.GetReason()),
				stampUTC(b.GetSinceUnixNs()),
				stampUTC(b.GetUntilUnixNs()),
			}
		}
	}
	return out
}

func stampUTC(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}

func writeDevices(w io.Writer, d devicesReport) error {
	if len(d.Devices) == 0 {
		return writeString(w, "nothing is barred, and no incident has named a GPU, link or port\n")
	}
	var b strings.Builder
	for _, s := range d.Devices {
		b.WriteString(s.text())
	}
	return writeString(w, b.String())
}

func (s deviceReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.Name)
	for _, i := range s.Incidents {
		end := "lasts"
		if i.End != "" {
			end = "ended " + i.End
		}
		fmt.Fprintf(&b, "  culprit of %s: %s, since %s, %s\n",
			i.ID, phrase.Cause(i.Cause), i.Onset, end)
	}
	if len(s.Incidents) == 0 {
		b.WriteString("  no incident has named it\n")
	}
	if s.Tested != "" {
		fmt.Fprintf(&b, "  %s\n", s.Tested)
	}
	if s.Bar != nil {
		fmt.Fprintf(&b, "  barred by %s since %s until %s: %s\n",
			s.Bar.By, s.Bar.Since, s.Bar.Until, s.Bar.Reason)
	}
	return b.String()
}
