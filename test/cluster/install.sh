#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs Weft on a cluster of `make cluster`, as a user would with Helm.
#
#   install.sh KUBECONFIG ipv4|ipv6|dual
set -euo pipefail

cd "$(dirname "$0")/../.."
components=$(test/components/build.sh kubernetes helm)
kubectl=$(sed -n 1p <<<"$components")/kubectl
helm=$(sed -n 2p <<<"$components")/helm
export KUBECONFIG=$1

case $2 in
ipv4) pool='{"ipv4":{"cidr":"10.42.0.0/16"}}' ;;
ipv6) pool='{"ipv4":null,"ipv6":{"cidr":"fd00:42::/48"}}' ;;
dual) pool='{"ipv4":{"cidr":"10.42.0.0/16"},"ipv6":{"cidr":"fd00:42::/48"}}' ;;
*) echo "unknown family $2" >&2 && exit 2 ;;
esac
"$helm" install weft deploy/chart --namespace kube-system --set image.pullPolicy=Never --set-json "pool.spec=$pool" >/dev/null
"$kubectl" -n kube-system rollout status daemonset/weft --timeout 60s
"$kubectl" wait --for=condition=Ready nodes --all --timeout 60s
echo
echo "export KUBECONFIG=$KUBECONFIG"
echo "PATH=\$PATH:$(dirname "$kubectl")"
