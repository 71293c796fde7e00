// Package clients tests the clients that programs use, each against a real controller with a simulated machine: that of
// Go always, those of Python and TypeScript with the build tag clients: make test-clients. The Ansible
// collection has the build tag ansible: make test-ansible.
package clients
