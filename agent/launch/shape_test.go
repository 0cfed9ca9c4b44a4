package launch

import (
	"testing"

	"github.com/failslow/falcon/backend/api/shapetest"
)

// What one agent writes of its launches the next one reads.
func TestShapeOfTheRecord(t *testing.T) {
	shapetest.Shape{
		Name:   "the record of launches",
		Number: recordVersion,
		Where:  "recordVersion in agent/launch/record.go",
		Lines:  shapetest.OfJSON("record", record{}),
	}.Check(t, "testdata/record.shape")
}
