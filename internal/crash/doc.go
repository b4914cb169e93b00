// SPDX-License-Identifier: Apache-2.0

// Package crash marks the places where a process may die between two effects:
// before and after each journal write and each kernel operation.
//
// In a normal build Point is empty and costs nothing. In a build with the tag
// "crashpoints" the test in test/crash lists the points that one call passes
// and then kills the process at each of them in turn.
package crash
