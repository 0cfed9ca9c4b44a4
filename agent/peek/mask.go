package peek

import (
	"regexp"
	"slices"
	"strings"
)

// masked stands for what was taken out.
const masked = "[masked]"

// secret is one form of a secret: what the pattern's first group holds stays, the rest is
// replaced. A line that holds none of the words, in lower case, is not looked at.
type secret struct {
	words   []string
	pattern *regexp.Regexp
	with    string
}

// secrets are what looks like one. It is best effort: a secret in a form of its own is not
// recognised.
var secrets = []secret{
	// AWS
	{
		[]string{"akia", "asia", "abia", "acca"},
		regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`),
		masked,
	},
	// GitHub
	{
		[]string{"gh", "github_pat_"},
		regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`),
		masked,
	},
	// Hugging Face
	{[]string{"hf_"}, regexp.MustCompile(`\bhf_[A-Za-z0-9]{20,}`), masked},
	// API keys
	{[]string{"sk-", "pk-", "rk-"}, regexp.MustCompile(`\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}`), masked},
	// Slack
	{[]string{"xox"}, regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`), masked},
	// Google
	{[]string{"aiza"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`), masked},
	// JSON web tokens
	{
		[]string{"eyj"},
		regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		masked,
	},
	// the line that begins one
	{[]string{"private key"}, regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----.*`), masked},
	// headers
	{
		[]string{"bearer", "basic"},
		regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}`),
		"${1}" + masked,
	},
	// URLs
	{[]string{"://"}, regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`), "${1}" + masked + "@"},
	{
		[]string{"passw", "passphrase", "secret", "api", "access", "credential", "token"},
		regexp.MustCompile(
			`(?i)((?:(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|credential)[A-Za-z0-9_.-]*|token)["']?\s*[=:]\s*)(?:"[^"]*"?|'[^']*'?|[^\s,;&"']+)`,
		),
		"${1}" + masked,
	},
}

// keyLine is a line of base64, as within a private key.
var keyLine = regexp.MustCompile(`^[A-Za-z0-9+/]{40,128}={0,2}$`)

func maskSecrets(s string) string {
	bare := strings.TrimSpace(s)
	if !strings.Contains(bare, " ") && keyLine.MatchString(bare) {
		return masked
	}
	lower := strings.ToLower(s)
	for _, x := range secrets {
		if slices.ContainsFunc(x.words, func(w string) bool {
			return strings.Contains(lower, w)
		}) {
			s = x.pattern.ReplaceAllString(s, x.with)
		}
	}
	return s
}
