// Package remedy says what to do about a connection that failed, for all who dial:
// consoles, commands and agents.
//
// It guarantees one sentence for each error that it knows, and "" for others. It is for people:
// nothing is decided by it.
package remedy

import "strings"

// hints are what to do about an error of TLS or of a connection, by what its text holds. Errors cross
// gRPC as text only. The first that fits counts.
var hints = []struct{ has, hint string }{
	{
		"certificate is valid for",
		"the engine's certificate does not name this address: issue it again with --host ADDRESS (falcon certs issue --role server --name server), or say which of its names is meant (server_name in agent.yaml, --server-name)",
	},
	{
		"doesn't contain any IP SANs",
		"the engine's certificate names no address: issue it again with --host ADDRESS (falcon certs issue --role server --name server)",
	},
	{
		"signed by unknown authority",
		"the engine's certificate is not of the authority in ca: copy ca.crt from the engine's folder of certificates",
	},
	{
		"certificate has expired",
		"a certificate is over, or a clock is wrong: issue it again, and compare the clocks",
	},
	{
		"reading server preface: EOF",
		"the engine ended the connection once it saw the certificate: it is revoked, over, or of another authority; the engine's log says which",
	},
	{
		"certificate is revoked",
		"this certificate was taken back: once the name is off the engine's list of revoked ones, or by its serial number alone on it, issue another (falcon certs issue --role agent --name NODE, or --role ROLE --name PERSON) and put it in the old one's place",
	},
	{
		"bad certificate",
		"the engine refuses this certificate: it is revoked, over, or of another authority; the engine's log says which",
	},
	{"certificate required", "the engine wants a certificate: falcon certs issue makes one"},
	{
		"connection refused",
		"nothing listens there: is the engine started, and does its listen name an address that others reach (0.0.0.0:7440)?",
	},
	{"no such host", "the name is not known here"},
}

// Of says what to do about a connection that failed; "" where nothing is known of it.
func Of(text string) string {
	for _, h := range hints {
		if strings.Contains(text, h.has) {
			return h.hint
		}
	}
	return ""
}

// With is a text with what to do about it.
func With(text string) string {
	if h := Of(text); h != "" {
		return text + ": " + h
	}
	return text
}
