package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/shapetest"
	"github.com/failslow/falcon/backend/bars"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/pace"
	"github.com/failslow/falcon/backend/triage"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// bodies are what records of each kind may hold.
var bodies = map[journal.Kind][]any{
	kindEpoch:       {epochRecord{}},
	kindReserve:     {reserveRecord{}},
	kindJob:         {jobRecord{}, delta{}},
	kindBaseline:    {baselineRecord{}},
	kindIncident:    {falcon.Incident{}},
	kindAction:      {falcon.Action{}},
	kindOrder:       {orderRecord{}},
	kindVote:        {voteRecord{}},
	kindOutcome:     {outcomeRecord{}},
	kindDecision:    {DecisionRecord{}},
	kindPolicy:      {policyRecord{}},
	kindEvent:       {eventRecord{}},
	kindOverhead:    {map[falcon.Rung]float64{}},
	kindSpeeds:      {speedsRecord{}},
	kindImpact:      {mitigate.Impact{}},
	kindValidation:  {validationRecord{}},
	kindRestart:     {restart.State{}},
	kindRecovery:    {falcon.Recovery{}, delta{}},
	kindFence:       {fenceRecord{}},
	kindSent:        {sentRecord{}, sentDelta{}},
	kindDevice:      {deviceRecord{}},
	kindEnded:       {endedRecord{}},
	kindLaunchEnded: {launchEndedRecord{}},
	kindWatched:     {history.Watched{}},
	kindTriage:      {triage.Entry{}},
	kindPace:        {[]pace.Stretch{}},
	kindBar:         {bars.Entry{}},
	kindClock:       {clock.Mark{}},
	kindAside:       {asideRecord{}},
}

// kept are what parts of a snapshot hold beside bodies of records.
var kept = map[string]any{
	"part":          part{},
	"counters":      counters{},
	"opened":        opening{},
	"stamps":        actionTimes{},
	"triage status": triage.Status{},
	"bar":           bars.Bar{},
	"device":        recovery.Seen{},
}

// What one engine writes into the journal the next one reads: records, and parts of snapshots.
func TestShapeOfTheJournal(t *testing.T) {
	var lines []string
	for kind, values := range bodies {
		lines = append(lines, "kind "+string(kind))
		for i, v := range values {
			lines = append(lines, shapetest.OfJSON(string(kind)+strings.Repeat("*", i), v)...)
		}
	}
	for name, v := range kept {
		lines = append(lines, shapetest.OfJSON("snapshot "+name, v)...)
	}
	for _, s := range sections {
		lines = append(lines, "section "+s.name)
	}
	shapetest.Shape{
		Name:   "the journal",
		Number: journal.Version,
		Where:  "Version in backend/journal/format.go",
		Lines:  lines,
	}.
		Check(t, "testdata/journal.shape")
}

// Every kind of records is in bodies, so that its shape is compared.
func TestEveryKindHasItsShape(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || !isKind(v) {
				return true
			}
			found++
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if _, known := bodies[journal.Kind(text)]; err != nil || !known {
				t.Errorf("%s: add %s with what its records hold to bodies in shape_test.go",
					name, v.Names[0].Name)
			}
			return true
		})
	}
	if found != len(bodies) {
		t.Errorf("%d kinds are declared and %d have a shape", found, len(bodies))
	}
}

// isKind reports whether a constant is declared as journal.Kind.
func isKind(v *ast.ValueSpec) bool {
	typ, ok := v.Type.(*ast.SelectorExpr)
	if !ok || typ.Sel.Name != "Kind" || len(v.Values) != 1 {
		return false
	}
	pkg, ok := typ.X.(*ast.Ident)
	return ok && pkg.Name == "journal"
}
