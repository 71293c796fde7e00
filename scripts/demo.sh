#!/usr/bin/env bash
# The demo: a controller with a private Postgres, one QEMU machine with its own kernel, twenty simulated machines.
#
#   scripts/demo.sh up       start it, show what it does, leave it running        (make demo)
#   scripts/demo.sh down     stop it by process id and remove its directory      (make demo-down)
#   scripts/demo.sh env      print the exports that let `ingot` talk to it
#
# Where networks can be made (root, or user namespaces), metal-1 is a machine in QEMU that begins powered off and with an
# empty disk, and is installed over its BMC and the network. Else it is one that QEMU hands its kernel.
#
# Everything lives in one directory: $INGOT_DEMO_DIR, else .cache/demo, else, where that cannot be made or the private
# Postgres could not get through to it, /var/tmp/ingot-demo-UID. Without root nothing is installed; without QEMU the machine is left out.
set -Eeuo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly top bin=$top/bin simulated=20 machine=metal-1

# ---------------------------------------------------------------- the directory

# writable PATH: it can be made, as far as that can be seen.
writable() {
  local dir=$1
  while [[ ! -e $dir ]]; do dir=$(dirname "$dir"); done
  [[ -w $dir ]]
}

# passable PATH: every folder above it, as far as it exists, can be entered by others. Root's Postgres runs as another user.
passable() {
  local dir=$1
  while [[ $dir != / ]]; do
    if [[ -e $dir && -z $(find "$dir" -maxdepth 0 -perm -o+x 2>/dev/null) ]]; then return 1; fi
    dir=$(dirname "$dir")
  done
}

choose_dir() {
  local dir=${INGOT_DEMO_DIR:-$top/.cache/demo}
  # The path of a Unix socket below it must fit into 107 bytes.
  if [[ -n ${INGOT_DEMO_DIR:-} ]] || { [[ ${#dir} -le 60 ]] && writable "$dir" && { [[ $(id -u) -ne 0 ]] || passable "$dir"; }; }; then
    echo "$dir"
  else
    echo "/var/tmp/ingot-demo-$(id -u)"
  fi
}
dir=$(choose_dir)
readonly dir logs=$dir/logs pids=$dir/pids

# ---------------------------------------------------------------- what is printed

if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' yellow=$'\e[33m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' green='' yellow='' red='' plain=''
fi
readonly bold dim green yellow red plain

step_number=0 step_name='' step_began=0 step_open=''

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# seconds MILLISECONDS: as 12.3 s.
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# step NAME: begins a step of one line; done_step ends it. show_step begins one that prints more.
step() {
  step_number=$((step_number + 1)) step_name=$1 step_began=$(now_ms) step_open=line
  printf '%s%2d%s  %-62s ' "$bold" "$step_number" "$plain" "$1"
}
show_step() {
  step_number=$((step_number + 1)) step_name=$1 step_began=$(now_ms) step_open=block
  printf '\n%s%2d  %s%s\n\n' "$bold" "$step_number" "$1" "$plain"
}
done_step() {
  local took
  took=$(seconds $(($(now_ms) - step_began)))
  if [[ $step_open == line ]]; then
    printf '%s%9s%s%s\n' "$green" "$took" "$plain" "${1:+  $1}"
  else
    printf '    %s%s%s\n' "$dim" "$took" "$plain"
  fi
  step_open=''
}
note() { printf '    %s\n' "$*"; }
warn() { printf '    %s%s%s\n' "$yellow" "$*" "$plain"; }

# run ARGUMENTS: shows the command as one would type it, and what it prints.
run() {
  printf '    %s$ ingot %s%s\n' "$bold" "$*" "$plain"
  ingot "$@"
}

# die [WHY [LINES]]: ends the demo, with the last lines of every log (6).
die() {
  trap - ERR EXIT
  [[ $step_open == line ]] && printf '%sfailed%s\n' "$red" "$plain"
  printf '\n%sThe demo ended in step %d: %s%s\n' "$red" "$step_number" "$step_name" "$plain" >&2
  [[ -z ${1:-} ]] || printf '%s\n' "$1" >&2
  local log lines=${2:-6}
  for log in "$logs"/*.log; do
    [[ -s $log && $lines -gt 0 ]] || continue
    printf '%s--- %s%s\n' "$dim" "$log" "$plain" >&2
    tail -n "$lines" "$log" >&2
  done
  stop_all
  printf 'Everything is stopped. The logs stay until make demo-down.\n' >&2
  exit 1
}

# ---------------------------------------------------------------- processes

started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# start NAME COMMAND...: runs it in a session of its own, so that it outlives the terminal. A process id alone could
# come to mean another process, so that its start time is kept with it.
start() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"$logs/$name.log" 2>&1 &
  echo "$! $(started_at $!)" >"$pids/$name"
  disown
}

# alive NAME: prints the process id while the process runs.
alive() {
  local pid began
  read -r pid began 2>/dev/null <"$pids/$1" || return 1
  [[ -n $began && $(started_at "$pid") == "$began" && $(cut -d' ' -f3 <"/proc/$pid/stat") != Z ]] && echo "$pid"
}

# stop NAME SECONDS: asks it to end, waits, and ends it.
stop() {
  local pid limit=$((SECONDS + $2))
  pid=$(alive "$1") || { rm -f "$pids/$1" && return 0; }
  kill -TERM "$pid" 2>/dev/null || true
  while alive "$1" >/dev/null && [[ $SECONDS -lt $limit ]]; do sleep 0.05; done
  if alive "$1" >/dev/null; then kill -KILL "$pid" 2>/dev/null || true; fi
  rm -f "$pids/$1"
}

# stop_postgres: one that outlived its controller.
stop_postgres() {
  local file pid limit=$((SECONDS + 20))
  while read -r file; do
    pid=$(head -n 1 "$file")
    [[ $(readlink "/proc/$pid/cwd") == "$(dirname "$(readlink -f "$file")")" ]] || continue
    kill -INT "$pid" 2>/dev/null || true
    while [[ -d /proc/$pid && $SECONDS -lt $limit ]]; do sleep 0.05; done
  done < <(find "$dir/controller" -maxdepth 3 -name postmaster.pid 2>/dev/null)
}

stop_all() {
  stop simulated 15
  stop "$machine" 15
  if [[ -e $dir/rack ]]; then "$bin/ingot-lab" down --dir "$dir/rack" >/dev/null 2>>"$logs/rack.log" || true; fi
  stop controller 30
  stop_postgres
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $limit ]] || die "$what"
    sleep 0.1
  done
}

# ---------------------------------------------------------------- talking to the controller

ingot() { INGOT_CONFIG=$dir/ingot.yaml "$bin/ingot" "$@"; }

# field KEY: the first value under the key in JSON.
field() { grep -oE "\"$1\": *(\"[^\"]*\"|-?[0-9]+|true|false)" | head -n 1 | sed -E 's/^"[^"]*": *//; s/^"(.*)"$/\1/' || true; }

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# choose_ports: the usual ones, or the next thousand where something listens there.
choose_ports() {
  for ((port = 50051; port < 60000; port += 1000)); do
    listens "$port" || listens $((port + 1)) || listens $((port + 2)) || listens $((port + 3)) || listens $((port + 4)) || return 0
  done
  die "no free ports from 50051 to 59055"
}

ready() {
  exec 3<>"/dev/tcp/127.0.0.1/$((port + 3))" || return 1
  printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
  local status
  read -r -t 5 _ status _ <&3
  exec 3>&-
  [[ $status == 200 ]]
}

ready_or_dead() { ready || ! alive controller; }

# 10.0.2.2 is the host's loopback as seen by a guest on QEMU's user network, 192.0.2.1 the controller as seen from a rack
# of ingot-lab. What tries its own loopback first is refused at once.
# advertised PORT RACK_PORT: where agents of this demo find a listener.
advertised() {
  if [[ -n $without_rack ]]; then
    printf '"127.0.0.1:%d", "10.0.2.2:%d"' "$1" "$1"
  else
    printf '"127.0.0.1:%d", "192.0.2.1:%d"' "$1" "$2"
  fi
}

configure_controller() {
  cat >"$dir/controller.yaml" <<END
data_dir: $dir/controller
listen:
  frontpage: 127.0.0.1:$port
  fleet: 127.0.0.1:$((port + 1))
  enrolment: 127.0.0.1:$((port + 2))
  http: 127.0.0.1:$((port + 3))
  rest: 127.0.0.1:$((port + 4))
tls:
  names: [localhost, 127.0.0.1, 10.0.2.2, 192.0.2.1]
advertise:
  fleet: [$(advertised $((port + 1)) 50052)]
  enrolment: [$(advertised $((port + 2)) 50053)]
agents:
  heartbeat_interval: 2s
installer_cmdline: console=ttyS0 panic=10 quiet no_timer_check
END
}

start_controller() {
  start controller "$bin/ingot-controller" run --dev --config "$dir/controller.yaml"
  wait_for 60 "the controller does not become ready" ready_or_dead
  alive controller >/dev/null || die "the controller ended at its start"
}

connected() { ingot agent list -o json 2>/dev/null | grep -cE '"connected": *true' || true; }
all_connected() { [[ $(connected) -ge $1 ]]; }
boot_id() { ingot machine get "$machine" -o json | field boot_id; }
has_booted() { [[ -n $(boot_id) ]]; }
resets() {
  local where=$dir/$machine
  [[ -n $without_rack ]] || where=$dir/rack/machines/$machine
  "$bin/ingot-lab" vm reboots --dir "$where"
}
granted() { ingot commands "$1" -o json | grep -qE '"state": *"GRANTED"'; }

# ---------------------------------------------------------------- the steps

without_machine='' # why there is no QEMU machine, if there is none
without_rack=''    # why it is not installed from nothing, if it isn't

need_go() {
  command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
  command -v go >/dev/null || die "Go is needed to build Ingot: https://go.dev/dl/" 0
}

install_packages() {
  step "packages"
  if [[ $(id -u) -eq 0 ]]; then
    "$top/scripts/install-deps" demo >"$logs/packages.log" 2>&1 || without_machine="packages could not be installed: $logs/packages.log"
    done_step
  else
    done_step "not root, so nothing is installed"
  fi
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null ||
    die "PostgreSQL is needed. As root: apt-get install --no-install-recommends postgresql"
  command -v qemu-system-x86_64 >/dev/null || without_machine="QEMU is missing. As root: scripts/install-deps demo"
  [[ $(uname -m) == x86_64 ]] || without_machine="the machine is built for x86_64, and this is $(uname -m)"
}

build() {
  step "build the controller, the agent and the command line"
  make -s -C "$top" build BINARIES='ingot ingot-controller ingot-agent ingot-image ingot-lab' >"$logs/build.log" 2>&1 || die "" 20
  done_step
}

# A rack needs more than a machine does.
look_for_rack() {
  without_rack=$without_machine
  [[ -z $without_rack ]] || return 0
  local name
  for name in ip nsenter ipmi_sim mformat syslinux qemu-img; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null || without_rack="$name is missing. As root: scripts/install-deps test"
  done
  "$bin/ingot-lab" check --firmware bios >>"$logs/rack.log" 2>&1 || without_rack=$(tail -n 1 "$logs/rack.log")
}

find_kernel() {
  [[ -z $without_machine ]] || return 0
  step "a kernel for the machine"
  if (cd "$top" && "$bin/ingot-lab" image kernel) >"$logs/kernel.log" 2>&1; then
    done_step
  else
    without_machine="there is no kernel for it: $(tail -n 1 "$logs/kernel.log")"
    done_step "none"
  fi
}

up_controller() {
  step "a controller with a Postgres of its own"
  choose_ports
  configure_controller
  start_controller
  ingot --server "localhost:$port" --ca-file "$dir/controller/ca.pem" --token-file "$dir/controller/admin-token" \
    config set-context demo >/dev/null
  done_step "localhost:$port"
}

issue() { ingot token issue "$1" --bare; }

# Switched on early and awaited late, because it boots while the others enrol.
power_on_machine() {
  [[ -z $without_machine ]] || return 0
  if [[ -z $without_rack ]]; then
    start rack-up env -C "$top" "$bin/ingot-lab" up --dir "$dir/rack" --machines 1 --worn-disk --firmware bios --bmc redfish \
      --server "localhost:$port" --ca-file "$dir/controller/ca.pem" --token-file "$dir/controller/admin-token" \
      --fleet "127.0.0.1:$((port + 1))" --enrolment "127.0.0.1:$((port + 2))"
    return
  fi
  ingot machine register "$machine" --label kind=qemu >/dev/null
  (umask 077 && issue "$machine" >"$dir/$machine.token")
  cd "$top"
  start "$machine" "$bin/ingot-lab" vm run --dir "$dir/$machine" --name "$machine" --agent-binary "$bin/ingot-agent" \
    --token-file "$dir/$machine.token"
}

simulated_machines() {
  step "$simulated simulated machines enrol, each with its own agent and key"
  ingot import "$simulated" --label kind=simulated >/dev/null
  (umask 077 && for ((i = 1; i <= simulated; i++)); do issue "machine-$i"; done >"$dir/bundles")
  start simulated "$bin/ingot-agent" simulate --count "$simulated" --bundles "$dir/bundles" --dir "$dir/simulated" \
    --sim-delay 1s --sim-repave-time 2s
  wait_for 60 "the simulated machines do not connect" all_connected "$simulated"
  rm "$dir/bundles" # used up
  done_step
}

machine_enrols() {
  if [[ -n $without_machine ]]; then
    warn "No QEMU machine: $without_machine"
    warn "What follows is simulated, all of it."
    return
  fi
  if [[ -z $without_rack ]]; then
    step "a site agent, and a machine that is off and has an empty disk"
    wait_for 180 "the rack does not come up: $logs/rack-up.log" rack_is_up
    done_step
    install_machine
    return
  fi
  warn "$machine is not installed from nothing: $without_rack"
  step "a QEMU machine boots its own kernel and enrols by itself"
  wait_for 120 "the QEMU machine does not enrol" has_booted
  wait_for 30 "the QEMU machine does not connect" all_connected $((simulated + 1))
  rm "$dir/$machine.token" # used up
  ingot enter-maintenance "$machine" >/dev/null 2>&1
  ingot exit-maintenance "$machine" >/dev/null 2>&1
  done_step
}

rack_is_up() { ! alive rack-up >/dev/null && "$bin/ingot-lab" list --dir "$dir/rack"; }

# choose_disk SERIAL: says which disk a reimage writes.
choose_disk() {
  note "${bold}\$ ingot machine update $machine --install-disk serial=$1${plain}"
  ingot machine update "$machine" --install-disk "serial=$1" >/dev/null
}

# A disk that refuses writes: the installation fails for real, and the list says so.
failed_install() {
  show_step "Install $machine on a disk that is worn out"
  "$bin/ingot-lab" list --dir "$dir/rack" | cut -c1-100 | sed 's/^/    /'
  choose_disk "$machine-worn"
  ingot enter-maintenance "$machine" >/dev/null 2>&1
  run reimage "$machine" --image tiny --request-id first-try && die "a worn disk was written"
  run list --filter "machine_id=$machine"
  done_step
}

# The real thing: firmware, DHCP, kernel over HTTP, an image on the disk, read back, and the new system's own word.
install_machine() {
  failed_install
  show_step "Name the sound disk, and simply ask again"
  choose_disk "$machine-d0"
  run reimage "$machine" --image tiny --request-id retry-001
  ingot exit-maintenance "$machine" >/dev/null 2>&1
  wait_for 30 "the installed machine does not connect" all_connected $((simulated + 2))
  done_step
}

example() {
  show_step "Reimage machine-1 (simulated: no disk is written)"
  run enter-maintenance machine-1
  run reimage machine-1 --image ubuntu-2204
  run exit-maintenance machine-1
  done_step
}

real_reboot() {
  [[ -z $without_machine ]] || return 0
  show_step "Reboot $machine for real"
  local before
  before=$(boot_id)
  run reboot "$machine"
  note "boot id before  $before"
  note "boot id after   $(boot_id)"
  note "resets that its hardware saw: $(resets)"
  done_step
}

crash() {
  local target=$machine operation at
  if [[ -n $without_machine ]]; then target='machine-2'; fi
  show_step "Reboot $target, and kill -9 the controller in the middle"
  if [[ -n $without_machine ]]; then ingot enter-maintenance "$target" >/dev/null 2>&1; fi
  operation=$(ingot reboot "$target" --no-wait -o name 2>/dev/null)
  note "${bold}\$ ingot reboot $target --no-wait${plain}"
  note "$operation"
  wait_for 30 "the command is not granted" granted "$operation"
  kill -KILL "$(alive controller)"
  note "${red}the agent has its leave; the controller is dead (kill -9)${plain}"
  sleep 1
  at=$(now_ms)
  start_controller
  note "${green}a new controller is up, $(seconds $(($(now_ms) - at))) after its start${plain}"
  run watch "$operation"
  if [[ -z $without_machine ]]; then
    note "resets that its hardware saw: $(resets), one for each operation"
  fi
  done_step
}

what_next() {
  printf '\n%sIn a browser%s, signed on by this link, once and within a minute:\n\n    %s\n' "$bold" "$plain" "$(ingot console)"
  cat <<END

${bold}It keeps running.${plain} In this shell:

    ${bold}eval "\$(scripts/demo.sh env)"${plain}
    ingot list
    ingot machine get machine-1
    ingot watch                        # and in another shell:
    ingot reboot machine-1
    ingot console                      # another link to all of it in a browser
END
  if [[ -z $without_machine ]]; then
    cat <<END
    ingot machine inventory $machine
    ingot reimage $machine --image tiny         # after: ingot enter-maintenance $machine
    ingot-lab console $machine --dir $dir/rack
    ingot reconfigure $machine --hostname web-7 --default-input drop --allow tcp:22
END
  fi
  cat <<END

Logs: $logs    Stop and remove: ${bold}make demo-down${plain}
END
}

# ---------------------------------------------------------------- the commands

print_env() {
  [[ -e $dir/ingot.yaml ]] || { echo "the demo is not up: make demo" >&2 && exit 1; }
  # shellcheck disable=SC2016  # PATH is for the shell that evaluates this
  printf 'export PATH=%q:$PATH INGOT_CONFIG=%q\n' "$bin" "$dir/ingot.yaml"
}

# answers: the demo of before is up and whole.
answers() {
  alive controller >/dev/null && alive simulated >/dev/null && [[ -e $dir/whole ]] || return 1
  [[ -s $dir/whole ]] || alive "$machine" >/dev/null || "$bin/ingot-lab" list --dir "$dir/rack" >/dev/null 2>&1 || return 1
  ingot --timeout 5s list >/dev/null 2>&1
}

up() {
  if answers; then
    without_machine=$(cat "$dir/whole")
    printf 'The demo is up already. To start afresh: make demo-down demo\n'
    what_next
    return
  fi
  if [[ -e $dir ]]; then down >/dev/null; fi
  need_go
  umask 022 # Postgres is another user, and what is above its files may be made here; secrets are made with 077 below
  mkdir -p "$(dirname "$dir")"
  mkdir -m 0711 "$dir"
  mkdir "$logs" "$pids"
  trap '[[ $BASH_SUBSHELL -ne 0 ]] || die' ERR
  trap 'die "It was interrupted." 0' INT TERM
  local began
  began=$(now_ms)
  printf '%sIngot demo%s  %sin %s%s\n\n' "$bold" "$plain" "$dim" "$dir" "$plain"
  install_packages
  build
  find_kernel
  look_for_rack
  up_controller
  power_on_machine
  simulated_machines
  machine_enrols
  example
  real_reboot
  crash
  show_step "The fleet"
  run list
  done_step
  printf '%s' "$without_machine" >"$dir/whole"
  printf '\n%sDone in %s.%s\n' "$green" "$(seconds $(($(now_ms) - began)))" "$plain"
  what_next
}

down() {
  if [[ ! -e $dir ]]; then
    echo "The demo is not up."
    return
  fi
  if [[ ! -O $dir ]]; then
    echo "$dir belongs to somebody else." >&2
    exit 1
  fi
  stop_all
  rm -rf "$dir"
  echo "The demo is gone. Kept: bin/, the kernel in .cache/lab, and Debian packages."
}

case ${1:-} in
  up) up ;;
  down) down ;;
  env) print_env ;;
  *) echo "usage: scripts/demo.sh up|down|env" >&2 && exit 2 ;;
esac
