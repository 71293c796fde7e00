// Package alerts holds the alert rules of deploy/prometheus against Prometheus itself and against a real controller.
package alerts
