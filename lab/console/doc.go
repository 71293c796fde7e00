// Package console tests the web console in a real browser, against a real controller with simulated machines. Its tests
// need Chromium and Node, and run with the build tag console: make console-test.
package console
