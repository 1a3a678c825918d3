#!/usr/bin/env bash
# Runs the gateway as the chart's pod does: process 1, user 65532, no capabilities, no new privileges, and a root file
# system of which nothing can be written but the data folder.
#   pod.sh PROGRAM EMPTY-FOLDER CONFIG-FOLDER ARGUMENTS...     in namespaces of its own: unshare --mount --pid --fork
set -euo pipefail
program="$1" root="$2" config="$3"
shift 3

mount --make-rprivate /
mount -t tmpfs root "$root"
cd "$root"
mkdir -p usr proc etc/highgate var/lib/highgate
touch highgate
mount --bind "$program" highgate
mount --bind "$config" etc/highgate
# The libraries of a program that is not static, and setpriv.
mount --bind /usr usr
for folder in lib lib64; do
    if [ -L "/$folder" ]; then
        ln -s "usr/$folder" "$folder"
    elif [ -d "/$folder" ]; then
        mkdir "$folder"
        mount --bind "/$folder" "$folder"
    fi
done
mount -t proc proc proc
mount -t tmpfs -o uid=65532,gid=65532,mode=0770 data var/lib/highgate
mount -o remount,ro "$root"
# A session of its own, as a container's first process has.
exec setsid chroot "$root" /usr/bin/setpriv --reuid 65532 --regid 65532 --clear-groups \
    --bounding-set -all --inh-caps -all --no-new-privs /highgate "$@"
