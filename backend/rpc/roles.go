package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// needs is the least role for every method. A method that is missing here is
// refused to everyone, and a test fails.
var needs = map[string]auth.Role{
	falconv1.Fleet_Attach_FullMethodName:       auth.RoleAgent,
	falconv1.Fleet_Renew_FullMethodName:        auth.RoleAgent,
	falconv1.Console_Snapshot_FullMethodName:   auth.RoleViewer,
	falconv1.Console_Watch_FullMethodName:      auth.RoleViewer,
	falconv1.Console_Incidents_FullMethodName:  auth.RoleViewer,
	falconv1.Console_Decide_FullMethodName:     auth.RoleApprover,
	falconv1.Console_Validate_FullMethodName:   auth.RoleApprover,
	falconv1.Console_Recoveries_FullMethodName: auth.RoleViewer,
	falconv1.Console_Recover_FullMethodName:    auth.RoleApprover,
	falconv1.Console_History_FullMethodName:    auth.RoleViewer,
	falconv1.Console_Probe_FullMethodName:      auth.RoleApprover,
	falconv1.Console_Triage_FullMethodName:     auth.RoleOperator,
	// a stack: approver, which the engine checks
	falconv1.Console_Peek_FullMethodName: auth.RoleOperator,
	// Freezing needs an operator; the engine refuses anything looser to one.
	falconv1.Console_SetPolicy_FullMethodName: auth.RoleOperator,
}

type identityKey struct{}

// admitRole identifies the caller and checks the table.
func admitRole(ctx context.Context, method string) (context.Context, error) {
	id, err := auth.FromContext(ctx)
	if err != nil {
		return ctx, status.Error(codes.Unauthenticated, err.Error())
	}
	need := needs[method]
	if !id.Role.Covers(need) {
		if need == auth.RoleNone {
			return ctx, status.Errorf(codes.PermissionDenied, "%s is open to nobody", method)
		}
		return ctx, status.Errorf(codes.PermissionDenied, "this needs the role %s and %s has the role %s",
			need, id.Name, id.Role)
	}
	return context.WithValue(ctx, identityKey{}, id), nil
}

// identity is the caller that admit has put there.
func identity(ctx context.Context) auth.Identity {
	id, _ := ctx.Value(identityKey{}).(auth.Identity)
	return id
}
