package logs

import "strings"

// isMonitorHeader reports whether a line is dcgmi dmon's header.
func isMonitorHeader(l string) bool {
	fields := strings.Fields(strings.TrimPrefix(l, "#"))
	return strings.HasPrefix(l, "#") && len(fields) > 1 && fields[0] == "Entity"
}
