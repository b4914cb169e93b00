#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints a manifest rendered from the chart, by the helm that test/components pins.
#
#   render.sh install      deploy/weft.yaml
#   render.sh uninstall    deploy/weft-uninstall.yaml
set -euo pipefail

cd "$(dirname "$0")"
helm=$(../test/components/build.sh helm)/helm
template() { "$helm" template weft chart --namespace kube-system "$@"; }

echo "# Made from deploy/chart by make generate: change the chart, not this file."
case ${1:-} in
install) template --include-crds ;;
uninstall) template --set uninstall.enabled=true ;;
*) echo "usage: $0 install|uninstall" >&2 && exit 2 ;;
esac
