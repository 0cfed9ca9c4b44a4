package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// UnprovenToProto is the message of a process that is not followed.
func UnprovenToProto(u falcon.Unproven) *falconv1.UnseenRank {
	return &falconv1.UnseenRank{
		Rank:        int32(u.Rank),
		Pid:         int32(u.PID),
		Reason:      uint32(u.Reason),
		Path:        u.Path,
		User:        int64(u.User),
		JobUser:     int64(u.JobUser),
		HookFormat:  uint32(u.HookFormat),
		AgentFormat: uint32(u.AgentFormat),
		RefusedCall: u.RefusedCall,
		RefusedBy:   u.RefusedBy,
	}
}

// UnprovenFromProto reads one. Of an agent that gives no reason the message says whether
// the hook is loaded.
func UnprovenFromProto(p *falconv1.UnseenRank) falcon.Unproven {
	return falcon.Unproven{
		Reason:      falcon.UnprovenReason(p.GetReason()),
		Rank:        falcon.Rank(p.GetRank()),
		PID:         int(p.GetPid()),
		Path:        p.GetPath(),
		User:        int(p.GetUser()),
		JobUser:     int(p.GetJobUser()),
		HookFormat:  int(p.GetHookFormat()),
		AgentFormat: int(p.GetAgentFormat()),
		RefusedCall: p.GetRefusedCall(),
		RefusedBy:   p.GetRefusedBy(),
	}
}
