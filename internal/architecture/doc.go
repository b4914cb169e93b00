// SPDX-License-Identifier: Apache-2.0

// Package architecture holds no code: its tests are the rules on which package
// may depend on which, so that they fail instead of being forgotten.
package architecture
