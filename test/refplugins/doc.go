// SPDX-License-Identifier: Apache-2.0

// Package refplugins pins the reference CNI plugins that Weft is measured and
// tested against: their versions are in this module's go.mod, as tools, and
// build.sh makes static binaries of them.
//
// It is a module of its own so that nothing of the reference plugins, and none
// of their dependencies, can ever be linked into a program of Weft or decide
// the version of a library that Weft uses. It holds no code.
package refplugins
