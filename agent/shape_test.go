package agent

import (
	"testing"

	"github.com/failslow/falcon/backend/api/shapetest"
)

// What one agent leaves the next one reads. The messages in it are those that agents send.
func TestShapesOfWhatIsLeft(t *testing.T) {
	shapetest.Shape{
		Name:   "an agent's handover",
		Number: handoverVersion,
		Where:  "handoverVersion in agent/handover.go",
		Lines:  shapetest.OfJSON("head", handoverHead{}),
	}.Check(t, "testdata/handover.shape")
	shapetest.Shape{
		Name:   "an agent's notebook",
		Number: notebookVersion,
		Where:  "notebookVersion in agent/notebook.go",
		Lines:  shapetest.OfJSON("head", notebookHead{}),
	}.Check(t, "testdata/notebook.shape")
}
