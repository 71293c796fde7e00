# Debian systems with systemd as process 1, in containers (systemd-nspawn) with networks of their own. Scripts source this
# file; $work is theirs, and goes with them unless KEEP is set.

[[ $(id -u) -eq 0 ]] || { echo "$0 boots systems and so needs root" >&2 && exit 1; }
for tool in systemd-nspawn mmdebstrap nsenter ip busybox; do
  command -v "$tool" >/dev/null || { echo "$tool is missing. Run: scripts/install-deps units" >&2 && exit 1; }
done
compgen -G 'dist/ingot_*.deb' >/dev/null || { echo "no packages in dist/. Run: make deb" >&2 && exit 1; }

cache=${INGOT_LAB_CACHE:-.cache}/units
work=$(mktemp -d /tmp/ingot-boxes.XXXXXX)
declare -A leader nspawn
start_time=$SECONDS

say() { printf '%4d s  %s\n' $((SECONDS - start_time)) "$*"; }
die() {
  say "FAILED: $*"
  [[ ! -s $work/log ]] || cat "$work/log" >&2
  local box
  for box in "${!leader[@]}"; do
    inside "$box" journalctl --no-pager -n 30 -u 'ingot-*' >&2 || true
  done
  exit 1
}

clean_up() {
  local box
  for box in "${!leader[@]}"; do
    kill -s RTMIN+4 "${leader[$box]}" 2>/dev/null || true # systemd: power off
  done
  for box in "${!nspawn[@]}"; do
    wait "${nspawn[$box]}" 2>/dev/null || true
  done
  if [[ -n ${KEEP:-} ]]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT

# until_true SECONDS WHAT COMMAND...: waits for the command to succeed.
until_true() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $limit ]] || die "$what"
    sleep 0.2
  done
}

make_tree() { # BOX
  local tree=$work/$1
  mkdir -p "$cache" "$tree"
  local packages=systemd,systemd-sysv,dbus,libpam-systemd,postgresql,procps,iproute2,ipxe,isolinux,syslinux-common,kmod
  packages+=,ca-certificates,openssh-client
  local made
  made=$cache/boxes-$(cksum <<<"$packages" | cut -d' ' -f1).tar
  if [[ ! -e $made ]]; then
    say "making a Debian tree (once)"
    mmdebstrap --quiet --variant=apt \
      --include="$packages" bookworm "$made.new.tar"
    mv "$made.new.tar" "$made"
  fi
  tar -xf "$made" -C "$tree"
  : >"$tree/etc/fstab"
  echo "$1" >"$tree/etc/hostname"
  ln -sf /dev/null "$tree/etc/systemd/system/systemd-networkd-wait-online.service"
  mkdir "$tree/opt/debs"
  cp dist/ingot*.deb "$tree/opt/debs/"
}

boot() { # BOX
  systemd-nspawn --directory="$work/$1" --boot --register=no --keep-unit --private-network --console=pipe --quiet \
    </dev/null >>"$work/$1.console" 2>&1 &
  nspawn[$1]=$!
  until_true 180 "$1 does not boot" find_leader "$1"
  until_true 180 "$1 does not come up" up "$1"
}

# find_leader BOX: its process 1. A child of nspawn that is not systemd yet may be one that only forks it and ends.
find_leader() {
  local pid
  pid=$(pgrep -P "${nspawn[$1]}" -x systemd) && leader[$1]=$pid
}

inside() { # BOX COMMAND...
  local box=$1
  shift
  nsenter --all --target "${leader[$box]}" -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root "$@"
}

up() { [[ $(inside "$1" systemctl is-system-running) =~ ^(running|degraded)$ ]]; }
main_pid() { inside "$1" systemctl show --property=MainPID --value "$2"; }

# must WHAT COMMAND...: runs it, and shows its output only when it fails.
must() {
  local what=$1
  shift
  "$@" >"$work/log" 2>&1 || die "$what"
}

# install_packages BOX PACKAGE...: from dist/; they start and enable nothing.
install_packages() {
  local box=$1
  shift
  cp "$(command -v busybox)" "$work/$box/opt/busybox"
  local debs=()
  for p in "$@"; do debs+=(/opt/debs/"$p"_*.deb); done
  inside "$box" sh -c 'dpkg --install '"${debs[*]}" >"$work/log" 2>&1 || die "install"
  local unit
  for unit in ingot-controller.service ingot-agent.service ingot-site.service ingot-netbox-sync.timer; do
    [[ -e $work/$box/lib/systemd/system/$unit ]] || continue
    [[ $(inside "$box" systemctl is-active "$unit") == inactive ]] || die "$unit was started by its installation"
    [[ $(inside "$box" systemctl is-enabled "$unit") == disabled ]] || die "$unit was enabled by its installation"
  done
}

# runs_as BOX UNIT USER CAPABILITIES: who the service's process really is.
runs_as() {
  local pid status
  pid=$(main_pid "$1" "$2")
  status=$(inside "$1" cat "/proc/$pid/status")
  [[ $(inside "$1" stat -c %U "/proc/$pid") == "$3" ]] || die "$2 is not of user $3"
  local set
  for set in CapEff CapBnd; do
    grep -q "^$set:.*$4\$" <<<"$status" || die "$2 has other capabilities: $status"
  done
}

# nothing_left BOX: no file, user, unit or process of ours is left after a purge, but for logs and what is an operator's own.
nothing_left() {
  inside "$1" sh -c 'find / -xdev \( -name "*ingot*" \) -not -path "/opt/*" -not -path "/proc/*" -not -path "/var/lib/postgresql/*" \
    -not -path "*/.config/*" -not -path "/srv/*" -not -path "/var/log/*"; getent passwd ingot ingot-site; getent group ingot ingot-site;
    systemctl list-unit-files "ingot*" --no-legend; pgrep -l ingot' >"$work/log" 2>&1 || true
  [[ ! -s $work/log ]] || die "purge leaves something in $1"
}
