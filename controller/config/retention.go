package config

import "path/filepath"

// Retention is how long logs are kept; for deliveries it is webhooks.keep_delivered and keep_dead. The audit log and
// the history of machines are kept for ever: the history proves that neither was rewritten.
type Retention struct {
	// Logs is how long the log of an operation is kept after its creation; 0 keeps it for ever.
	Logs Duration `yaml:"logs"`
	// ExportDir is the absolute path of a directory in which a log is kept as a file before it is removed. Required with
	// Logs.
	ExportDir string `yaml:"export_dir"`
	// States is how far back lists show the machines at a moment; 0 keeps all states. A machine's history is kept for
	// ever.
	States Duration `yaml:"states"`
}

func (c *Config) checkRetention(k *checker) {
	r := c.Retention
	if r.States.Duration != 0 {
		duration(k, "retention.states", r.States, day, 36500*day)
	}
	if r.Logs.Duration != 0 {
		duration(k, "retention.logs", r.Logs, day, 36500*day)
		if !filepath.IsAbs(r.ExportDir) {
			k.add("retention.export_dir",
				"an absolute path, which retention.logs needs: logs are kept there before they are removed")
		}
	}
}
