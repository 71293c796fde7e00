// Package rig is what the tests of whole systems share: their limits, what they await, and a system with a MAAS region.
package rig
