package agent

import (
	"reflect"
	"time"

	"github.com/failslow/falcon/agent/act"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// command is how the agent carries out one kind of command.
type command struct {
	start func(a *Agent, cmd *falconv1.Command, now, deadline time.Time) (act.Task, error)
	// resumes: the agent's next life goes on with it, because all of it is in the processes' memory,
	// or in a file. What holds or times the job ends with the agent.
	resumes bool
	refused func(a *Agent, cmd *falconv1.Command, why string) // sends it to who else waits; nil = no one
}

// commands are entered by the files that have them, by the type of the command's body.
var commands = map[reflect.Type]command{}

// enter adds a kind of command, whose body is B.
func enter[B any](c command) bool {
	commands[reflect.TypeFor[B]()] = c
	return true
}

func commandOf(cmd *falconv1.Command) command {
	if cmd.GetBody() == nil {
		return command{}
	}
	return commands[reflect.TypeOf(cmd.GetBody())]
}

// startCommand is the executor's Starter.
func (a *Agent) startCommand(cmd *falconv1.Command, now, deadline time.Time) (act.Task, error) {
	c := commandOf(cmd)
	if c.start == nil {
		return nil, errUnknown
	}
	t, err := c.start(a, cmd, now, deadline)
	if err != nil && c.refused != nil {
		c.refused(a, cmd, err.Error())
	}
	return t, err
}

// replayRefusal returns why a command can't be resumed, "" where it can.
func (a *Agent) replayRefusal(cmd *falconv1.Command) string {
	c := commandOf(cmd)
	if c.resumes {
		return ""
	}
	if c.refused != nil {
		c.refused(a, cmd, replaced)
	}
	return replaced
}
