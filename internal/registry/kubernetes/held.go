// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"reflect"

	"weft.dev/weft/internal/registry"
)

// held returns what the Store has of an object.
func held(s *registry.State, key registry.Key) (value any, there bool) {
	switch key.Kind {
	case registry.Node:
		value, there = s.Nodes[key.Name]
	case registry.Namespace:
		value, there = s.Namespaces[key.Name]
	case registry.Pod:
		value, there = s.Pods[key.Name]
	case registry.IPPool:
		value, there = s.Pools[key.Name]
	case registry.SubnetLease:
		value, there = s.Leases[key.Name]
	case registry.AddressClaim:
		value, there = s.Claims[key.Name]
	}
	return value, there
}

// same reports whether the Store has this value of an object.
func same(s *registry.State, key registry.Key, value any) bool {
	has, there := held(s, key)
	return there && reflect.DeepEqual(has, value)
}
