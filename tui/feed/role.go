package feed

// roleLevel orders roles as the engine does (backend/auth), which checks each
// call again: what consoles ask here only spares a refusal.
var roleLevel = map[string]int{
	"viewer":   1,
	"operator": 2,
	"approver": 3,
	"admin":    4,
}

// Covers reports whether a role may do what another is needed for.
func Covers(role, need string) bool {
	return roleLevel[role] >= roleLevel[need]
}
