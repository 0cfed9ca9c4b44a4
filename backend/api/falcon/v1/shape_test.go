package falconv1_test

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/shapetest"
	"github.com/failslow/falcon/tui/record"
)

//go:generate go test . -count=1 -run TestShapesOfMessages -record

// Messages have a number for each pair of programs that share them. Fields are only added;
// `make proto` records new ones.
func TestShapesOfMessages(t *testing.T) {
	const revisions = "in backend/api/falcon/v1/revision.go"
	services := falconv1.File_falcon_v1_falcon_proto.Services()
	shapetest.Shape{
		Name:   "what agents and the engine send each other",
		Number: falconv1.ProtocolRevision,
		Where:  "ProtocolRevision " + revisions,
		Lines:  shapetest.OfService(services.ByName("Fleet")),
	}.Check(t, "testdata/agents.shape")
	shapetest.Shape{
		Name:   "what consoles and the engine send each other",
		Number: falconv1.ConsoleRevision,
		Where:  "ConsoleRevision " + revisions,
		Lines:  shapetest.OfService(services.ByName("Console")),
	}.Check(t, "testdata/consoles.shape")
	entry := falconv1.File_falcon_v1_record_proto.Messages().ByName("RecordEntry")
	shapetest.Shape{
		Name:   "a recording",
		Number: record.Version,
		Where:  "Version in tui/record/write.go",
		Lines:  shapetest.OfMessage(entry),
	}.Check(t, "testdata/recording.shape")
}
