package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/table"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// tableTask waits for a rank table to be in its file. A goroutine writes it, as
// a disk may take seconds and signs of life must not wait for it.
type tableTask struct{ written chan error }

var _ = enter[*falconv1.Command_Table](command{
	start: func(a *Agent, cmd *falconv1.Command, _, _ time.Time) (act.Task, error) {
		return a.startTable(cmd.GetTable())
	},
	resumes: true,
})

func (a *Agent) startTable(cmd *falconv1.TableCommand) (act.Task, error) {
	whole := cmd.GetTable()
	change := cmd.GetDelta()
	t := &tableTask{written: make(chan error, 1)}
	if cmd.GetNone() {
		t.written <- nil
		return t, nil
	}
	if (len(whole) == 0) == (len(change) == 0) {
		return nil, errors.New("a rank table comes whole or as a delta")
	}
	a.working.Go(func() {
		g := cmd.GetGeneration()
		base := cmd.GetBaseGeneration()
		if len(whole) > 0 {
			t.written <- a.table.Put(g, whole)
		} else {
			t.written <- a.table.Apply(g, base, change)
		}
		a.wake()
	})
	a.log.Info(
		"a rank table came",
		slog.Uint64("generation", cmd.GetGeneration()),
		slog.Int("bytes", len(whole)+len(change)),
	)
	return t, nil
}

// Poll is done when the table is in its file, or can't be.
func (t *tableTask) Poll(time.Time) (*falconv1.CommandResult, bool) {
	select {
	case err := <-t.written:
		return tableResult(err), true
	default:
		return nil, false
	}
}

// PollLate goes on: the table may still come to be written.
func (t *tableTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

func tableResult(err error) *falconv1.CommandResult {
	if err == nil {
		return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	}
	if errors.Is(err, table.ErrFile) {
		err = fmt.Errorf(
			"%w (rank_table in agent.yaml must name a file in a directory that the agent can write)",
			err,
		)
	}
	var older *table.OlderError
	if errors.As(err, &older) {
		err = &act.Older{Newest: older.Newest, Reason: err}
	}
	return act.Refused(err)
}
