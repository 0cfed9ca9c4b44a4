package falcon

import "fmt"

// UnprovenReason is why no process is followed for a file of the hook, or for a process
// that trains as a rank. The numbers are those of the contract and of journals.
type UnprovenReason int

// The reasons.
const (
	UnprovenNone       UnprovenReason = iota // nothing speaks against the process
	UnprovenNoHook                           // the hook is not loaded
	UnprovenNoCall                           // the hook is loaded, and no NCCL call has come to it
	UnprovenHidden                           // its PID namespace can't be seen by the agent
	UnprovenUnreadable                       // the kernel does not let the agent look at it
	UnprovenUser                             // it runs as another user than the job
	UnprovenForged                           // the file was made by another user than the process runs as
	UnprovenVersion                          // the hook writes another format than the agent reads
	UnprovenDamaged                          // the file is truncated, or not the hook's
	UnprovenRefused                          // the kernel refused the hook its memory
	unprovenReasons
)

// Known reports whether the reason is one of these.
func (r UnprovenReason) Known() bool {
	return r > UnprovenNone && r < unprovenReasons
}

// Unproven is a process that is not followed: nothing is concluded from it, and it is
// never signalled.
type Unproven struct {
	Reason UnprovenReason
	Rank   Rank   // -1 while unknown
	PID    int    // as the agent sees it; in its own namespace where it can't; 0 = unknown
	Path   string // its file, "" = none
	// of UnprovenUser: whose process it is, and whose the job's are; of UnprovenForged: the
	// file's and the process's
	User, JobUser           int
	HookFormat, AgentFormat int    // of UnprovenVersion: numbers of the file's format
	RefusedCall, RefusedBy  string // of UnprovenRefused: what was refused, and with which error
}

// String names the process, says why it is not followed and what to do, in one sentence
// without a full stop.
func (u Unproven) String() string {
	return u.subject("") + " " + u.Why()
}

// On is the sentence with the node.
func (u Unproven) On(n Node) string {
	return u.subject(" on "+string(n)) + " " + u.Why()
}

func (u Unproven) subject(where string) string {
	name := "a training process" + where
	if u.Rank >= 0 {
		name = fmt.Sprintf("rank %d%s", u.Rank, where)
	}
	if u.PID > 0 {
		name += fmt.Sprintf(" (process %d)", u.PID)
	}
	return name
}

// Why is the reason and the remedy, to be read behind the process's name.
func (u Unproven) Why() string {
	switch u.Reason {
	case UnprovenNoHook:
		return "runs without the hook: start it with falcon-agent run"
	case UnprovenNoCall:
		return "has loaded the hook, and no NCCL call has come to it: it has made no communicator yet, or its NCCL can't be hooked"
	case UnprovenHidden:
		return "is in a PID namespace that the agent can't see: give the agent the host's (docker --pid=host, Kubernetes hostPID: true)"
	case UnprovenUnreadable:
		return "can't be looked at by the agent: run the agent as the job's user, or as root with CAP_SYS_PTRACE"
	case UnprovenUser:
		return fmt.Sprintf(
			"runs as user %d, and the job as user %d: it is not followed; end it, or set user in agent.yaml",
			u.User, u.JobUser,
		)
	case UnprovenForged:
		return fmt.Sprintf("runs as user %d, and its file was made by user %d: remove %s",
			u.JobUser, u.User, u.Path)
	case UnprovenVersion:
		return fmt.Sprintf(
			"has a hook of format %d, and this agent reads format %d: install hook and agent of one release, the agent first",
			u.HookFormat, u.AgentFormat,
		)
	case UnprovenDamaged:
		return fmt.Sprintf("has a damaged file: end the process and remove %s", u.Path)
	case UnprovenRefused:
		return fmt.Sprintf(
			"trains without Falcon: %s was refused to the hook (%s); allow it in the container's seccomp profile, or make room for %s",
			u.RefusedCall, u.RefusedBy, u.Path,
		)
	}
	return "is not followed"
}
