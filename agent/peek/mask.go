package peek

import "regexp"

// masked stands for what was taken out.
const masked = "[masked]"

// secrets are what looks like a secret, with the group that is replaced. It is best
// effort: a secret in a form of its own is not recognised.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`),                       // AWS access keys
	regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`), // GitHub
	regexp.MustCompile(`\bhf_[A-Za-z0-9]{20,}`),                                         // Hugging Face
	regexp.MustCompile(`\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}`),                             // API keys
	regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`),                                // Slack
	regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`),                                      // Google
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),     // JSON web tokens
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----.*`),                          // the line that begins one
	regexp.MustCompile(`^\s*[A-Za-z0-9+/]{40,128}={0,2}$`),                              // a line of base64, as within a key
}

// named are words before a secret: the value behind them is replaced.
var named = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}`),
	regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*(?:(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|credential)[A-Za-z0-9_.-]*|token)["']?\s*[=:]\s*)(?:"[^"]*"?|'[^']*'?|[^\s,;&"']+)`),
	regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`), // of a URL
}

func maskSecrets(s string) string {
	for _, r := range secrets {
		s = r.ReplaceAllString(s, masked)
	}
	for i, r := range named {
		with := "${1}" + masked
		if i == len(named)-1 {
			with += "@"
		}
		s = r.ReplaceAllString(s, with)
	}
	return s
}
