# SPDX-License-Identifier: Apache-2.0
#
# The first process of a host: mounts its view of the file system and becomes the
# holder, which says so on descriptor 3. It is in the host's namespaces and cgroups.
# setup DIR NAME HOLDER

dir=$1
hostname "$2"
mount --make-rprivate /

mount -t tmpfs -o mode=755 run /run # in memory, as on any node, and gone at a reboot
mount -t proc proc /proc

# A new sysfs shows the links of this network namespace, and new mounts of the
# cgroup hierarchies the part of them that is the host's.
hierarchies=$(ls -d /sys/fs/cgroup/*/)
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
for path in $hierarchies; do
	name=$(basename "$path")
	option=$name
	case $name in
	unified) continue ;;
	systemd) option=none,name=systemd ;;
	esac
	mkdir "$path"
	mount -t cgroup -o "$option" cgroup "$path"
done
mount -t bpf bpf /sys/fs/bpf

# Whatever else is written below these stays on this host.
for top in etc opt var; do
	mkdir -p "$dir/upper/$top" "$dir/work/$top"
	mount -t overlay overlay -o "lowerdir=/$top,upperdir=$dir/upper/$top,workdir=$dir/work/$top" "/$top"
done

# What tests look at, and what an overlay cannot hold (containerd's overlays).
for path in etc/cni opt/cni var/lib/kubelet var/lib/containerd var/lib/cni var/log; do
	mkdir -p "/$path"
	mount --bind "$dir/root/$path" "/$path"
done
mkdir -p /run/lock /run/netns

# After a reboot, the boot id is another one.
[ ! -e "$dir/boot_id" ] || mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id

# As systemd does: the kubelet and pods with HostToContainer need it.
mount --make-rshared /
ip link set lo up
exec "$3" holder
