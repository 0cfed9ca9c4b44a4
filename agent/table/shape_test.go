package table

import (
	"testing"

	"github.com/failslow/falcon/backend/api/shapetest"
)

// A delta is written by the engine, the file beside a table is read by frameworks.
func TestShapeOfTables(t *testing.T) {
	lines := append(shapetest.OfJSON("sidecar", Sidecar{}), shapetest.OfJSON("delta", delta{})...)
	shapetest.Shape{
		Name:   "what describes and changes a rank table",
		Number: Version,
		Where:  "Version in agent/table/table.go",
		Lines:  lines,
	}.Check(t, "testdata/table.shape")
}
