# shellcheck shell=bash
# What the smoke tests share. Sourced, never run.
#
# A smoke test shows one promise from outside, with the shipped binaries. By default it starts a controller of its own
# with a private Postgres in a temporary directory. With INGOT_SERVER set (and INGOT_CA_FILE or INGOT_CA_HASH, and
# INGOT_TOKEN_FILE or INGOT_TOKEN with scope admin) it uses that controller instead. Either way it removes what it made
# and stops, by process id, what it started.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${INGOT_BIN:-$top/bin}
work=$(mktemp -d "${TMPDIR:-/tmp}/ingot-smoke.XXXXXX")
chmod 0711 "$work" # As root, the private Postgres runs as another user who has to get through.
began=$SECONDS
own_controller='' # its process id, when the controller is ours
declare -A running=() # what we started: process id → name
machines=() # what we registered
run_id=$(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')

say() { printf '      %s\n' "$*"; }
proved() { printf 'ok    %s\n' "$*"; }

fail() {
  printf 'FAIL  %s\n' "$*" >&2
  local log
  for log in "$work"/*.log; do
    [[ -e $log ]] || continue
    echo "--- last lines of ${log##*/}" >&2
    tail -n 25 "$log" >&2
  done
  exit 1
}

# started NAME: takes note of the process just started. Without disown the shell would announce its end.
started() {
  running[$!]=$1
  disown
}

# stop_process PID [SIGNAL]: ends a process of ours and waits for it.
stop_process() {
  kill -s "${2:-TERM}" "$1" 2>/dev/null || true
  local limit=$((SECONDS + 20))
  while kill -0 "$1" 2>/dev/null && [[ $SECONDS -lt $limit ]]; do sleep 0.1; done
  kill -s KILL "$1" 2>/dev/null || true
  unset "running[$1]"
}

clean_up() {
  local status=$? pid
  trap - EXIT INT TERM
  if [[ -n ${INGOT_SERVER:-} && ( -z $own_controller || -n ${running[$own_controller]:-} ) ]]; then
    forget_machines
  fi
  for pid in "${!running[@]}"; do
    [[ $pid == "$own_controller" ]] || stop_process "$pid"
  done
  [[ -z $own_controller ]] || stop_process "$own_controller"
  stop_database
  if [[ $status -ne 0 && -n ${KEEP:-} ]]; then
    echo "kept: $work" >&2
  else
    rm -rf "$work"
  fi
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# forget_machines revokes the agents of our machines and deletes the machines, as far as that goes.
forget_machines() {
  local machine agent
  for machine in "${machines[@]}"; do
    agent=$(agent_of "$machine" 2>/dev/null) || agent=''
    [[ -z $agent ]] || ingot agent revoke "$agent" --reason "smoke test" >/dev/null 2>&1 || true
    ingot machine delete "$machine" >/dev/null 2>&1 || true
  done
}

ingot() { "$bin/ingot" --timeout "${CLI_TIMEOUT:-120s}" "$@"; }
# quietly COMMAND...: what the command says beside its output goes to a log, which a failing test prints.
quietly() { "$@" 2>>"$work/commands.log"; }

# field KEY: the first string or number under the key in the JSON on standard input; empty when there is none. It reads
# all of its input: a writer that is cut off would look like a failed command.
field() {
  local found
  found=$(grep -oE "\"$1\": *(\"[^\"]*\"|-?[0-9]+|true|false)") || return 0
  found=${found%%$'\n'*}
  found=${found#*:}
  found=${found# }
  found=${found#\"}
  printf '%s\n' "${found%\"}"
}

# shows PATTERN COMMAND...: what the command prints matches the extended regular expression.
shows() {
  local pattern=$1 out
  shift
  out=$("$@") && [[ $out =~ $pattern ]]
}

# eventually SECONDS WHAT COMMAND...: waits until the command succeeds.
eventually() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $limit ]] || fail "$what"
    sleep 0.1
  done
}

# refused CODE REASON COMMAND...: the command must exit with the code and name the reason.
refused() {
  local code=$1 reason=$2 status=0 out
  shift 2
  out=$("$@" 2>&1) || status=$?
  [[ $status -eq $code ]] || fail "exit $status, want $code, of: $* — $out"
  [[ $out == *"$reason"* ]] || fail "no $reason in the answer to: $* — $out"
}

need() {
  local name
  for name in "$@"; do
    [[ -x $bin/$name ]] || fail "$bin/$name is missing. Run: make build"
  done
}

# start_controller FRONTPAGE FLEET ENROLMENT: starts the controller of ours there and waits until it is ready.
start_controller() {
  rm -f "$work/addresses"
  "$bin/ingot-controller" run --dev --config "$work/controller.yaml" --data-dir "$work/controller" \
    --name "$controller_names,127.0.0.1" --listen "$1" --listen-fleet "$2" --listen-enrolment "$3" --listen-http 127.0.0.1:0 \
    --addresses-file "$work/addresses" >>"$work/controller.log" 2>&1 &
  own_controller=$!
  started controller
  local limit=$((SECONDS + 60))
  until [[ -s $work/addresses ]]; do
    kill -0 "$own_controller" 2>/dev/null || fail "the controller ended at its start"
    [[ $SECONDS -lt $limit ]] || fail "the controller does not start"
    sleep 0.1
  done
  INGOT_SERVER=$(field Frontpage <"$work/addresses")
  export INGOT_SERVER INGOT_CA_FILE=$work/controller/ca.pem INGOT_TOKEN_FILE=$work/controller/admin-token
  eventually 60 "the controller does not become ready" http_ok "$(field HTTP <"$work/addresses")" /readyz
}

# http_ok HOST:PORT PATH: a GET answers 200. Needs no other program.
http_ok() {
  local status
  exec 3<>"/dev/tcp/${1%:*}/${1##*:}" || return 1
  printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
  read -r -t 5 _ status _ <&3
  exec 3>&-
  [[ $status == 200 ]]
}

# controller NAME...: makes sure that there is a controller; agents dial one of ours under any of the names.
controller() {
  need ingot ingot-agent
  if [[ -n ${INGOT_SERVER:-} ]]; then
    say "using the controller at $INGOT_SERVER"
    return
  fi
  need ingot-controller
  controller_names=$(IFS=, && echo "$*")
  echo 'agents: {heartbeat_interval: 1s}' >"$work/controller.yaml"
  start_controller 127.0.0.1:0 127.0.0.1:0 127.0.0.1:0
  if [[ $# -gt 1 ]]; then # By itself it tells agents one name; for several it must know its ports.
    {
      echo 'advertise:'
      echo "  fleet: [$(dialled Fleet "$@")]"
      echo "  enrolment: [$(dialled Enrolment "$@")]"
    } >>"$work/controller.yaml"
    stop_process "$own_controller"
    restart_controller
  fi
  say "started a controller of its own at $INGOT_SERVER"
}

# dialled LISTENER NAME...: the names with the listener's port, as a list.
dialled() {
  local port name list=()
  port=$(field "$1" <"$work/addresses")
  for name in "${@:2}"; do list+=("\"$name:${port##*:}\""); done
  (IFS=, && echo "${list[*]}")
}

# kill_controller and restart_controller are for the one of ours. It comes back at the same addresses.
kill_controller() { stop_process "$own_controller" KILL; }
restart_controller() {
  local fleet enrolment
  fleet=$(field Fleet <"$work/addresses") enrolment=$(field Enrolment <"$work/addresses")
  start_controller "$INGOT_SERVER" "$fleet" "$enrolment"
}

# stop_database ends the private Postgres of a controller that was killed and did not come back.
stop_database() {
  local file
  for file in "$work"/controller/*/postmaster.pid "$work"/controller/*/*/postmaster.pid; do
    if [[ -e $file ]]; then kill -s INT "$(head -n 1 "$file")" 2>/dev/null || true; fi
  done
}

# register NAME [FLAG...]: registers a machine of this run; its id is in the variable of that name.
register() {
  local variable=$1 id="smoke-$1-$run_id"
  shift
  ingot machine register "$id" --label smoke=true "$@" >/dev/null
  machines+=("$id")
  printf -v "$variable" '%s' "$id"
}

# issue MACHINE [FLAG...]: writes a bootstrap token for the machine to a file and prints the file's name.
issue() {
  local file="$work/$1.bundle"
  (umask 077 && ingot token issue "$@" --bare >"$file")
  echo "$file"
}

# start_agent MACHINE [FLAG...]: starts a simulated machine's agent; its process id is in agent_pid.
start_agent() {
  local machine=$1
  shift
  "$bin/ingot-agent" run --state-dir "$work/$machine" --host sim --sim-dir "$work/world" --sim-id "$machine" "$@" \
    >>"$work/$machine.log" 2>&1 &
  # shellcheck disable=SC2034  # for the tests
  agent_pid=$!
  started "agent of $machine"
}

agent_of() { ingot machine get "$1" -o json | field agent_id; }
connected() { # MACHINE
  local agent
  agent=$(agent_of "$1") && [[ -n $agent ]] && shows '"connected": *true' ingot agent get "$agent" -o json
}
wait_connected() { eventually "${2:-30}" "the agent of $1 does not connect" connected "$1"; }

# effects MACHINE KIND: how often the simulated world, outside of every agent, has seen the effect.
effects() {
  local count
  count=$(grep -F "\"machine_id\":\"$1\"" "$work/world/effects.jsonl" 2>/dev/null | grep -F '"stage":"effect"' |
    grep -cF "\"kind\":\"$2\"") || true
  echo "${count:-0}"
}

phase_of() { ingot ops get "$1" -o json | field phase; }
done_with() { printf '      done in %d s\n' $((SECONDS - began)); }
