// Package provideraction executes an action of a machine's provider. It reads the state, decides, makes a request at
// most once, and ends when the provider shows the desired state.
package provideraction
