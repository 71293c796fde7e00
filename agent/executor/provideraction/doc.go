// Package provideraction executes what is asked of a machine's provider: it looks, decides, makes a request at most
// once, and ends when the provider itself shows what the request was for.
package provideraction
