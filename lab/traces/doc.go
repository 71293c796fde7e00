// Package traces follows operations through controllers and agents by the spans that they send, as a receiver of OTLP
// gets them.
package traces
